//! Builds the Telegram adapter.

use petasos_config::choices::TelegramNotifications;
use petasos_config::keys::telegram;
use petasos_config::{Origin, Problem, Settings};
use petasos_core::command;
use petasos_platforms::listener::is_loopback;
use petasos_platforms::telegram::{
    Config, MenuCommand, Notifications, Telegram, TelegramConfigError, WebhookConfig,
};
use petasos_platforms::{Adapter, Secret};

use super::BuiltAdapter;
use super::credential::{self, Credential, Enabled};

const TOKEN: Credential = Credential {
    key: telegram::TOKEN,
    name: "token",
    missing: "set TELEGRAM_BOT_TOKEN in .env; get one from @BotFather",
    replace: "set the token that @BotFather gave you",
};

pub(crate) fn build(settings: &Settings, problems: &mut Vec<Problem>) -> Option<BuiltAdapter> {
    if credential::enabled(settings, &telegram::ENABLED) == Enabled::No {
        return None;
    }
    let token = credential::require(settings, (&telegram::ENABLED, "Telegram"), TOKEN, problems)?;
    let place = settings.origin(&TOKEN.key).to_string();
    if !is_token(&token) {
        let what =
            format!("{} does not look like a Telegram token (123456789:AAE… with 35 characters)", TOKEN.key);
        problems
            .push(Problem::warning(place.clone(), what).next("compare it with the message of @BotFather"));
    }
    let config = config(settings, &token);
    problems.extend(config.webhook.as_ref().and_then(|webhook| plain_http(settings, webhook)));
    match Telegram::new(config) {
        Ok(telegram) => Some(BuiltAdapter {
            adapter: Adapter::Telegram(telegram),
            // Two gateways with one bot would take each other's messages.
            bot_lock: Some(("telegram-bot-token", Secret::new(token))),
        }),
        Err(invalid) => {
            problems.push(problem(settings, place, &invalid));
            None
        }
    }
}

fn problem(settings: &Settings, place: String, invalid: &TelegramConfigError) -> Problem {
    let at = |origin: Origin| Problem::error(origin.to_string(), invalid.to_string());
    match invalid {
        TelegramConfigError::NoWebhookSecret => at(settings.origin(&telegram::WEBHOOK_URL)).next(
            "set TELEGRAM_WEBHOOK_SECRET in .env (openssl rand -hex 32), or remove the webhook URL to use polling",
        ),
        TelegramConfigError::WebhookSecret => {
            at(settings.origin(&telegram::WEBHOOK_SECRET)).next("create a new one with openssl rand -hex 32")
        }
        TelegramConfigError::WebhookUrl(_) => at(settings.origin(&telegram::WEBHOOK_URL))
            .next("set a complete URL that Telegram can call, such as https://example.org/telegram"),
        TelegramConfigError::BaseFileUrl(_) => at(settings.origin(&telegram::BASE_FILE_URL)),
        TelegramConfigError::BaseUrl(_) | TelegramConfigError::Pattern { .. } | TelegramConfigError::Client(_) => {
            Problem::error(place, invalid.to_string())
        }
    }
}

/// The webhook secret and the messages travel in plain text.
fn plain_http(settings: &Settings, webhook: &WebhookConfig) -> Option<Problem> {
    let what = format!(
        "the Telegram webhook on {} is reachable from other machines and uses plain HTTP",
        webhook.host
    );
    let problem = Problem::warning(settings.origin(&telegram::WEBHOOK_HOST).to_string(), what);
    let advice = "put an HTTPS proxy in front, and listen on 127.0.0.1";
    (!is_loopback(&webhook.host)).then(|| problem.next(advice))
}

fn webhook(settings: &Settings) -> Option<WebhookConfig> {
    Some(WebhookConfig {
        secret: settings.get(&telegram::WEBHOOK_SECRET),
        host: settings.get(&telegram::WEBHOOK_HOST),
        port: settings.get(&telegram::WEBHOOK_PORT),
        ..WebhookConfig::new(settings.get(&telegram::WEBHOOK_URL)?)
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
    Config {
        base_url: settings.get(&telegram::BASE_URL),
        base_file_url: settings.get(&telegram::BASE_FILE_URL),
        proxy: settings.get(&telegram::PROXY),
        webhook: webhook(settings),
        poll_timeout: settings.get(&telegram::POLL_TIMEOUT),
        poll_backoff_base: settings.get(&telegram::POLL_BACKOFF),
        request_timeout: settings.get(&telegram::REQUEST_TIMEOUT),
        notifications: match settings.get(&telegram::NOTIFICATIONS) {
            TelegramNotifications::Important => Notifications::Important,
            TelegramNotifications::All => Notifications::All,
        },
        menu: menu(),
        typing: settings.get(&telegram::TYPING),
        reply_to: super::reply_to(settings.get(&telegram::REPLY_TO)),
        reactions: settings.get(&telegram::REACTIONS),
        require_mention: settings.get(&telegram::REQUIRE_MENTION),
        mention_patterns: settings.get(&telegram::MENTION_PATTERNS),
        allowed_chats: settings.get(&telegram::ALLOWED_CHATS),
        guest_mode: settings.get(&telegram::GUEST_MODE),
        free_response_chats: settings.get(&telegram::FREE_CHATS),
        free_response_topics: settings.get(&telegram::FREE_TOPICS),
        exclusive_bot_mentions: settings.get(&telegram::EXCLUSIVE_MENTIONS),
        ignored_threads: settings.get(&telegram::IGNORED_THREADS),
        allowed_topics: settings.get(&telegram::ALLOWED_TOPICS),
        ..Config::new(Secret::new(token))
    }
}

fn menu() -> Vec<MenuCommand> {
    let listed = command::TABLE.iter().filter(|spec| !spec.args.starts_with('<') && spec.word != "start");
    listed.map(|spec| MenuCommand { command: spec.word.into(), description: spec.help.into() }).collect()
}
