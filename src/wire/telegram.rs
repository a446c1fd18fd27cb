//! The Telegram adapter, if there is to be one.

use petasos_core::command;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::telegram::{Config, Invalid, MenuCommand, Notifications, Telegram, WebhookConfig};
use petasos_platforms::{Adapter, Secret};

use super::credential::{self, Credential, Wanted};
use super::{Spoken, seconds};
use crate::config::{Problem, Settings};

const TOKEN: Credential = Credential {
    path: "platforms.telegram.token",
    name: "token",
    missing: "set TELEGRAM_BOT_TOKEN in .env; @BotFather gives you one",
    replace: "put the token from @BotFather there",
};

const WEBHOOK_URL: &str = "platforms.telegram.webhook_url";
const WEBHOOK_HOST: &str = "platforms.telegram.webhook_host";
const BASE_FILE_URL: &str = "platforms.telegram.extra.base_file_url";

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
    let config = config(settings, &token);
    problems.extend(config.webhook.as_ref().and_then(|webhook| plain_http(settings, webhook)));
    match Telegram::new(config) {
        Ok(telegram) => Some(Spoken {
            adapter: Adapter::Telegram(telegram),
            // Two gateways with one bot would take each other's messages away.
            sole: Some(("telegram-bot-token", Secret::new(token))),
        }),
        Err(invalid) => {
            problems.push(problem(settings, place, &invalid));
            None
        }
    }
}

fn problem(settings: &Settings, place: String, invalid: &Invalid) -> Problem {
    let at = |path: &str| Problem::error(settings.origin(path).to_string(), invalid.to_string());
    match invalid {
        Invalid::NoWebhookSecret => at(WEBHOOK_URL).next(
            "set TELEGRAM_WEBHOOK_SECRET in .env (openssl rand -hex 32), or remove the address to poll",
        ),
        Invalid::WebhookSecret => {
            at("platforms.telegram.webhook_secret").next("make a new one: openssl rand -hex 32")
        }
        Invalid::WebhookUrl(_) => at(WEBHOOK_URL)
            .next("write the whole address that Telegram can call, like https://example.org/telegram"),
        Invalid::BaseFileUrl(_) => at(BASE_FILE_URL),
        Invalid::BaseUrl(_) | Invalid::Pattern { .. } | Invalid::Client(_) => {
            Problem::error(place, invalid.to_string())
        }
    }
}

/// The secret travels with every update, and so do the messages.
fn plain_http(settings: &Settings, webhook: &WebhookConfig) -> Option<Problem> {
    let what = format!(
        "the webhook of Telegram on {} can be reached from other machines, and is plain HTTP",
        webhook.host
    );
    let problem = Problem::warning(settings.origin(WEBHOOK_HOST).to_string(), what);
    let advice = "put a proxy with HTTPS in front, and listen on 127.0.0.1";
    (!is_loopback(&webhook.host)).then(|| problem.next(advice))
}

fn webhook(settings: &Settings) -> Option<WebhookConfig> {
    let fresh = WebhookConfig::new(settings.text(WEBHOOK_URL)?);
    let port = settings.count("platforms.telegram.webhook_port").and_then(|port| u16::try_from(port).ok());
    Some(WebhookConfig {
        secret: settings.text("platforms.telegram.webhook_secret").map(Secret::new),
        host: settings.text(WEBHOOK_HOST).unwrap_or(fresh.host),
        port: port.unwrap_or(fresh.port),
        ..fresh
    })
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
        base_file_url: settings.text(BASE_FILE_URL),
        proxy: settings.text("platforms.telegram.proxy").map(Secret::new),
        webhook: webhook(settings),
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
