//! The Telegram adapter, if there is to be one.

use petasos_core::command;
use petasos_platforms::telegram::{Config, MenuCommand, Notifications, Telegram};
use petasos_platforms::{Adapter, Secret};

use super::seconds;
use crate::config::{Problem, Settings};
use crate::scoped::Sole;

/// What people leave in a copied example.
const PLACEHOLDERS: [&str; 7] = ["your", "token", "changeme", "change_me", "placeholder", "xxx", "<"];

pub(super) fn adapter(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Adapter> {
    let path = "platforms.telegram.token";
    let wanted = settings.value("platforms.telegram.enabled").and_then(|it| it.as_bool());
    if wanted == Some(false) {
        return None;
    }
    let Some(token) = settings.text(path) else {
        if wanted == Some(true) {
            let place = settings.origin("platforms.telegram.enabled").to_string();
            let problem = Problem::error(place, "platforms.telegram is enabled, but there is no token");
            problems.push(problem.next("set TELEGRAM_BOT_TOKEN in .env; @BotFather gives you one"));
        }
        return None;
    };
    let place = settings.origin(path).to_string();
    let lower = token.to_ascii_lowercase();
    if PLACEHOLDERS.iter().any(|word| lower.starts_with(word)) {
        let problem = Problem::warning(place, format!("{path} is a placeholder, so Telegram stays off"));
        problems.push(problem.next("put the token from @BotFather there"));
        return None;
    }
    if !is_token(&token) {
        let what =
            format!("{path} does not look like a token of Telegram (123456789:AAE… with 35 characters)");
        problems.push(Problem::warning(place.clone(), what).next("compare it with what @BotFather wrote"));
    }
    match Telegram::new(config(settings, &token)) {
        Ok(telegram) => Some(Adapter::Telegram(telegram)),
        Err(invalid) => {
            problems.push(Problem::error(place, invalid.to_string()));
            None
        }
    }
}

/// Two gateways with one bot would take each other's messages away.
pub(super) fn sole(settings: &Settings) -> Option<Sole> {
    let token = settings.text("platforms.telegram.token")?;
    Some(Sole { scope: "telegram-bot-token", platform: "telegram", identity: Secret::new(token) })
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
