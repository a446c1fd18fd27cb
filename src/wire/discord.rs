//! The Discord adapter, if there is to be one.

use petasos_config::choices::CommandSync;
use petasos_config::keys::{any, discord};
use petasos_config::{Problem, Settings};
use petasos_core::access::Bots;
use petasos_core::{Platform, command};
use petasos_platforms::discord::{Config, Discord, Liveness, MenuCommand, MenuPolicy};
use petasos_platforms::{Adapter, CatchUp, Secret};

use super::credential::{self, Credential, Wanted};
use super::{Spoken, access};

const TOKEN: Credential = Credential {
    key: discord::TOKEN,
    name: "token",
    missing: "set DISCORD_BOT_TOKEN in .env; discord.com/developers/applications gives you one under Bot",
    replace: "put the token there that discord.com/developers/applications shows under Bot",
};

pub(super) fn spoken(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Spoken> {
    if credential::wanted(settings, &discord::ENABLED) == Wanted::No {
        return None;
    }
    let token = credential::filled(settings, (&discord::ENABLED, "Discord"), TOKEN, problems)?;
    let place = settings.origin(&TOKEN.key).to_string();
    if !is_token(&token) {
        let what =
            format!("{} does not look like a token of Discord (three parts with dots between)", TOKEN.key);
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
    let platform = Platform::parse("discord")?;
    let users = settings.on(platform, &any::ALLOWED_USERS);
    let is_id = |user: &String| user == "*" || user.bytes().all(|byte| byte.is_ascii_digit());
    let name = users.iter().find(|user| !is_id(user))?;
    let what = format!("{}: {name:?} is not an id, so it admits nobody", any::ALLOWED_USERS.path(platform));
    let next = "switch on Developer Mode in Discord, right-click the person, Copy User ID";
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
        catch_up: CatchUp {
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
        allow_bots: Platform::parse("discord").map_or(Bots::None, |here| access::bots(settings, here)),
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

/// Every command: what follows one is asked for in its own field.
fn menu() -> Vec<MenuCommand> {
    let listed = command::TABLE.iter().filter(|spec| spec.word != "start");
    listed.map(|spec| MenuCommand { command: spec.word.into(), description: spec.help.into() }).collect()
}
