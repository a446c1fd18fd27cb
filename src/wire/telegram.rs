//! The Telegram adapter, if there is to be one.

use petasos_core::command;
use petasos_platforms::telegram::{Config, MenuCommand, Notifications, Telegram};
use petasos_platforms::{Adapter, Secret};

use super::credential::{self, Credential, Wanted};
use super::{Spoken, seconds};
use crate::config::{Problem, Settings};
use crate::scoped::Sole;

const TOKEN: Credential = Credential {
    path: "platforms.telegram.token",
    name: "token",
    missing: "set TELEGRAM_BOT_TOKEN in .env; @BotFather gives you one",
    replace: "put the token from @BotFather there",
};

pub(super) fn spoken(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Spoken> {
    if credential::wanted(settings, "telegram") == Wanted::No {
        return None;
    }
    let token = credential::filled(settings, ("telegram", "Telegram"), TOKEN, problems)?;
    let place = settings.origin(TOKEN.path).to_string();
    if !is_token(&token) {
        let what = format!(
            "{} does not look like a token of Telegram (123456789:AAE… with 35 characters)",
            TOKEN.path
        );
        problems.push(Problem::warning(place.clone(), what).next("compare it with what @BotFather wrote"));
    }
    match Telegram::new(config(settings, &token)) {
        Ok(telegram) => Some(Spoken {
            adapter: Adapter::Telegram(telegram),
            // Two gateways with one bot would take each other's messages away.
            sole: Some(Sole {
                scope: "telegram-bot-token",
                platform: "telegram",
                identity: Secret::new(token),
            }),
        }),
        Err(invalid) => {
            problems.push(Problem::error(place, invalid.to_string()));
            None
        }
    }
}

/// A number, a colon, and a secret of at least 30 characters.
fn is_token(text: &str) -> bool {
    text.split_once(':').is_some_and(|(id, secret)| {
        let number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let plain = secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        number && plain && secret.len() >= 30
    })
}

fn config(settings: &Settings, token: &str) -> Config {
    let list = |name: &str| settings.list(&format!("platforms.telegram.{name}"));
    let flag = |name: &str| settings.flag(&format!("platforms.telegram.{name}"));
    let fresh = Config::new(Secret::new(token));
    Config {
        base_url: settings.text("platforms.telegram.extra.base_url").unwrap_or(fresh.base_url),
        proxy: settings.text("platforms.telegram.proxy").map(Secret::new),
        poll_timeout: seconds(settings, "platforms.telegram.extra.poll_timeout"),
        poll_backoff_base: seconds(settings, "platforms.telegram.extra.poll_backoff_base"),
        request_timeout: seconds(settings, "platforms.telegram.extra.request_timeout"),
        notifications: match settings.text("platforms.telegram.notifications").as_deref() {
            Some("all") => Notifications::All,
            Some(_) | None => Notifications::Important,
        },
        menu: menu(),
        typing: flag("typing_indicator"),
        reply_to: super::reply_to(settings, "telegram"),
        reactions: flag("reactions"),
        require_mention: flag("require_mention"),
        mention_patterns: list("mention_patterns"),
        allowed_chats: list("allowed_chats"),
        guest_mode: flag("guest_mode"),
        free_response_chats: list("free_response_chats"),
        free_response_topics: list("free_response_topics"),
        exclusive_bot_mentions: flag("exclusive_bot_mentions"),
        ignored_threads: list("ignored_threads"),
        allowed_topics: list("allowed_topics"),
        ..fresh
    }
}

/// Commands that make sense without an argument.
fn menu() -> Vec<MenuCommand> {
    let listed = command::TABLE.iter().filter(|spec| !spec.args.starts_with('<') && spec.word != "start");
    listed.map(|spec| MenuCommand { command: spec.word.into(), description: spec.help.into() }).collect()
}
