//! The Discord adapter, if there is to be one.

use petasos_core::command;
use petasos_platforms::discord::{Config, Discord, Liveness, MenuCommand, MenuPolicy};
use petasos_platforms::{Adapter, Secret};

use super::credential::{self, Credential, Wanted};
use super::{Spoken, access, seconds, small};
use crate::config::{Problem, Settings};

const TOKEN: Credential = Credential {
    path: "platforms.discord.token",
    name: "token",
    missing: "set DISCORD_BOT_TOKEN in .env; discord.com/developers/applications gives you one under Bot",
    replace: "put the token there that discord.com/developers/applications shows under Bot",
};

pub(super) fn spoken(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Spoken> {
    if credential::wanted(settings, "discord") == Wanted::No {
        return None;
    }
    let token = credential::filled(settings, ("discord", "Discord"), TOKEN, problems)?;
    let place = settings.origin(TOKEN.path).to_string();
    if !is_token(&token) {
        let what =
            format!("{} does not look like a token of Discord (three parts with dots between)", TOKEN.path);
        let next = "a client secret or public key is not it; the token is under Bot, \"Reset Token\"";
        problems.push(Problem::warning(place.clone(), what).next(next));
    }
    problems.extend(named_people(settings));
    match Discord::new(config(settings, &token)) {
        Ok(discord) => Some(Spoken {
            adapter: Adapter::Discord(discord),
            // Two gateways with one bot would both answer.
            sole: Some(("discord-bot-token", Secret::new(token))),
        }),
        Err(invalid) => {
            problems.push(Problem::error(place, invalid.to_string()));
            None
        }
    }
}

fn is_token(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(plain))
}

/// Names change hands, so only ids are compared.
fn named_people(settings: &Settings) -> Option<Problem> {
    let path = "platforms.discord.allowed_users";
    let users = settings.list(path);
    let is_id = |user: &String| user == "*" || user.bytes().all(|byte| byte.is_ascii_digit());
    let name = users.iter().find(|user| !is_id(user))?;
    let what = format!("{path}: {name:?} is not an id, so it admits nobody");
    let next = "switch on Developer Mode in Discord, right-click the person, Copy User ID";
    Some(Problem::warning(settings.origin(path).to_string(), what).next(next))
}

fn config(settings: &Settings, token: &str) -> Config {
    let path = |name: &str| format!("platforms.discord.{name}");
    let text = |name: &str| settings.text(&path(name));
    let list = |name: &str| settings.list(&path(name));
    let flag = |name: &str| settings.flag(&path(name));
    let wait = |name: &str| seconds(settings, &path(name));
    let fresh = Config::new(Secret::new(token));
    Config {
        api_base: text("extra.api_base").unwrap_or(fresh.api_base),
        gateway_url: text("extra.gateway_url"),
        proxy: text("proxy").map(Secret::new),
        request_timeout: wait("extra.request_timeout"),
        reconnect_base: wait("extra.reconnect_base"),
        liveness: Liveness {
            interval: wait("extra.websocket_liveness_interval_seconds"),
            failures: small(settings, &path("extra.websocket_liveness_failure_threshold")),
            ack_age: wait("extra.websocket_heartbeat_ack_max_age_seconds"),
            latency: wait("extra.websocket_max_latency_seconds"),
        },
        catch_up: super::catch_up(settings, "discord"),
        menu: menu(),
        menu_policy: match text("command_sync_policy").as_deref() {
            Some("bulk") => MenuPolicy::Bulk,
            Some("off") => MenuPolicy::Off,
            Some(_) | None => MenuPolicy::Safe,
        },
        typing: flag("typing_indicator"),
        reply_to: super::reply_to(settings, "discord"),
        allowed_roles: list("allowed_roles"),
        reactions: flag("reactions"),
        allow_bots: access::bots(settings, "discord"),
        bots_require_inline_mention: flag("bots_require_inline_mention"),
        require_mention: flag("require_mention"),
        thread_require_mention: flag("thread_require_mention"),
        ignore_no_mention: flag("ignore_no_mention"),
        allowed_channels: list("allowed_channels"),
        ignored_channels: list("ignored_channels"),
        free_response_channels: list("free_response_channels"),
        auto_thread: flag("auto_thread"),
        no_thread_channels: list("no_thread_channels"),
        ..fresh
    }
}

/// Every command: what follows one is asked for in its own field.
fn menu() -> Vec<MenuCommand> {
    let listed = command::TABLE.iter().filter(|spec| spec.word != "start");
    listed.map(|spec| MenuCommand { command: spec.word.into(), description: spec.help.into() }).collect()
}
