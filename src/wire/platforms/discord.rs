//! Builds the Discord adapter.

use petasos_config::choices::CommandSync;
use petasos_config::keys::{any, discord};
use petasos_config::{Problem, Settings};
use petasos_core::command;
use petasos_platforms::discord::{Config, Discord, Liveness, MenuCommand, MenuPolicy};
use petasos_platforms::{Adapter, AdapterKind, BackfillLimits, Secret};

use super::BuiltAdapter;
use super::credential::{self, Credential, Enabled};
use crate::wire::access;

const TOKEN: Credential = Credential {
    key: discord::TOKEN,
    name: "token",
    missing: "set DISCORD_BOT_TOKEN in .env; get one at discord.com/developers/applications under Bot",
    replace: "set the token that discord.com/developers/applications shows under Bot",
};

pub(crate) fn build(settings: &Settings, problems: &mut Vec<Problem>) -> Option<BuiltAdapter> {
    if credential::enabled(settings, &discord::ENABLED) == Enabled::No {
        return None;
    }
    let token = credential::require(settings, (&discord::ENABLED, "Discord"), TOKEN, problems)?;
    let place = settings.origin(&TOKEN.key).to_string();
    if !is_token(&token) {
        let what =
            format!("{} does not look like a Discord token (three parts separated by dots)", TOKEN.key);
        let next = "it is not the client secret or the public key; find the token under Bot, \"Reset Token\"";
        problems.push(Problem::warning(place.clone(), what).next(next));
    }
    problems.extend(user_names_problem(settings));
    match Discord::new(config(settings, &token)) {
        Ok(discord) => Some(BuiltAdapter {
            adapter: Adapter::Discord(discord),
            // Two gateways with one bot would both answer.
            bot_lock: Some(("discord-bot-token", Secret::new(token))),
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

/// User names can be reassigned, so only ids are accepted.
fn user_names_problem(settings: &Settings) -> Option<Problem> {
    let platform = AdapterKind::Discord.platform();
    let users = settings.on(platform, &any::ALLOWED_USERS);
    let is_id = |user: &String| user == "*" || user.bytes().all(|byte| byte.is_ascii_digit());
    let name = users.iter().find(|user| !is_id(user))?;
    let what = format!("{}: {name:?} is not an id and has no effect", any::ALLOWED_USERS.path(platform));
    let next = "enable Developer Mode in Discord, right-click the person, Copy User ID";
    Some(Problem::warning(settings.origin_on(platform, &any::ALLOWED_USERS).to_string(), what).next(next))
}

fn config(settings: &Settings, token: &str) -> Config {
    Config {
        api_base: settings.get(&discord::API_BASE),
        gateway_url: settings.get(&discord::GATEWAY_URL),
        proxy: settings.get(&discord::PROXY),
        request_timeout: settings.get(&discord::REQUEST_TIMEOUT),
        reconnect_base: settings.get(&discord::RECONNECT_BASE),
        liveness: Liveness {
            interval: settings.get(&discord::LIVENESS_INTERVAL),
            failures: settings.get(&discord::LIVENESS_FAILURES),
            ack_age: settings.get(&discord::ACK_AGE),
            latency: settings.get(&discord::LATENCY),
        },
        backfill: BackfillLimits {
            window: settings.get(&discord::BACKFILL_WINDOW),
            messages: if settings.get(&discord::BACKFILL) {
                settings.get(&discord::BACKFILL_LIMIT)
            } else {
                0
            },
        },
        menu: menu(),
        menu_policy: match settings.get(&discord::COMMAND_SYNC) {
            CommandSync::Safe => MenuPolicy::Safe,
            CommandSync::Bulk => MenuPolicy::Bulk,
            CommandSync::Off => MenuPolicy::Off,
        },
        typing: settings.get(&discord::TYPING),
        reply_to: super::reply_to(settings.get(&discord::REPLY_TO)),
        allowed_roles: settings.get(&discord::ALLOWED_ROLES),
        reactions: settings.get(&discord::REACTIONS),
        allow_bots: access::bots(settings, AdapterKind::Discord.platform()),
        bots_require_inline_mention: settings.get(&discord::BOTS_INLINE_MENTION),
        require_mention: settings.get(&discord::REQUIRE_MENTION),
        thread_require_mention: settings.get(&discord::THREAD_REQUIRE_MENTION),
        ignore_no_mention: settings.get(&discord::IGNORE_NO_MENTION),
        allowed_channels: settings.get(&discord::ALLOWED_CHANNELS),
        ignored_channels: settings.get(&discord::IGNORED_CHANNELS),
        free_response_channels: settings.get(&discord::FREE_CHANNELS),
        auto_thread: settings.get(&discord::AUTO_THREAD),
        no_thread_channels: settings.get(&discord::NO_THREAD_CHANNELS),
        ..Config::new(Secret::new(token))
    }
}

/// Every command: Discord asks for arguments in their own field.
fn menu() -> Vec<MenuCommand> {
    let listed = command::TABLE.iter().filter(|spec| spec.word != "start");
    listed.map(|spec| MenuCommand { command: spec.word.into(), description: spec.help.into() }).collect()
}
