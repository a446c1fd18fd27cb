//! The other link: Telegram calls us, and is told 200 only after the gateway has committed.
//!
//! Telegram keeps what was not answered with a 2xx and posts it again, chat by chat in order; the inbox knows by
//! `dedup` what it already has. Nobody knows when the next update comes, so every beat asks our own listener whether it
//! answers (`called.rs`), and Telegram whether the address is still ours and how its calls fare. What we cannot read is
//! kept and answered with 200 like everything else: Telegram would say it again for ever, and nothing after it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use petasos_core::{Fault, Platform};
use reqwest::Url;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::gate::Gate;
use super::receive::{WANTED, sorted};
use super::wire::Me;
use super::{Config, Error, Invalid, Telegram, is_own_server, parse};
use crate::called::{Bell, Echo, Hearing, News, healthy, is_question};
use crate::intake::{Health, Intake, NotTaken, Taken, Unreadable};
use crate::listener::{self, Listener, Place, Request, Seat, later, refused, unread};
use crate::{Secret, webhook};

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";
const LONGEST_SECRET: usize = 256;
/// Largest update; real ones have a few kilobytes.
const MAX_BODY: usize = 1 << 20;
/// When to try again what could not be kept, in seconds.
const SOON: u64 = 5;
/// Questions to Telegram without an answer, in a row, that end the link; the next one starts from the beginning.
const MISSES: u32 = 3;
/// Where polling goes on if the owner returns to it: at the first update that Telegram still holds. It holds none
/// that we answered with a 2xx, and any higher number would drop those that we could not keep.
const ALL_THAT_IS_LEFT: &str = "0";

const NOT_ANSWERING: Health = Health::Degraded { reason: "telegram_webhook_not_answering" };

/// What the owner set for being called. The secret must be there; that it can be missing here is how we tell.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Where Telegram calls; its path is ours.
    pub url: String,
    pub secret: Option<Secret>,
    pub host: String,
    pub port: u16,
    /// How often Telegram is asked about the webhook.
    pub beat: Duration,
}

impl WebhookConfig {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            secret: None,
            host: "127.0.0.1".to_owned(),
            port: 8443,
            beat: Duration::from_secs(30),
        }
    }
}

/// The same, checked.
#[derive(Debug)]
pub(super) struct Door {
    url: Url,
    secret: Secret,
    place: Place,
    beat: Duration,
}

impl Door {
    pub(super) fn new(webhook: &WebhookConfig, config: &Config) -> Result<Self, Invalid> {
        let secret = webhook.secret.clone().ok_or(Invalid::NoWebhookSecret)?;
        if !is_secret(secret.expose()) {
            return Err(Invalid::WebhookSecret);
        }
        // A server of one's own may stand on this machine; Telegram's calls through HTTPS only.
        let fits = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && is_own_server(config));
        let url = Url::parse(&webhook.url).ok().filter(|url| url.has_host() && fits(url));
        Ok(Self {
            url: url.ok_or_else(|| Invalid::WebhookUrl(config.token.redact(&webhook.url)))?,
            secret,
            place: Place {
                host: webhook.host.clone(),
                port: webhook.port,
                port_key: "TELEGRAM_WEBHOOK_PORT",
            },
            beat: webhook.beat,
        })
    }
}

/// What Telegram takes as a secret.
fn is_secret(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= LONGEST_SECRET && text.bytes().all(plain)
}

/// What Telegram says about its calls.
#[derive(Debug, Deserialize)]
struct Info {
    url: String,
    #[serde(default)]
    pending_update_count: u64,
    last_error_message: Option<String>,
}

impl Telegram {
    pub(super) async fn be_called(
        &self,
        door: &Door,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let me = match self.get_me().await {
            Ok(me) => me,
            Err(error) => return error,
        };
        let listener = match Listener::bind(&door.place).await {
            Ok(listener) => listener,
            Err(error) => return error.into(),
        };
        info!(platform = "telegram", bot = me.username, port = door.place.port, "listening for the webhook");
        let (bell, news) = Bell::new();
        let desk = Arc::new(Desk {
            path: door.url.path().to_owned(),
            secret: door.secret.clone(),
            platform: self.platform,
            gate: self.gate.clone(),
            me,
            intake: Mutex::new(intake.clone()),
            bell,
        });
        tokio::select! {
            never = listener.serve(move |request| answer(desk.clone(), request)) => match never {},
            error = self.watch(door, (&listener, Echo::new("telegram", door.beat)), news, health) => error,
        }
    }

    async fn watch(
        &self,
        door: &Door,
        (listener, mut echo): (&Listener, Echo),
        mut news: mpsc::Receiver<News>,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        if let Err(error) = self.set_webhook(door).await {
            return error;
        }
        let mut misses = 0;
        let mut next = Instant::now();
        loop {
            let heard = tokio::select! {
                news = news.recv() => news,
                () = sleep_until(next) => None,
            };
            match heard {
                Some(News::Heard) => {
                    echo.heard();
                    health(Health::Polling);
                }
                Some(News::NotTaken) => health(Health::Degraded { reason: "telegram_not_taken" }),
                Some(News::Gone) => return Error::Closed,
                None => {
                    next = Instant::now() + echo.every;
                    let (hearing, asked) = tokio::join!(echo.ask(listener), self.ask(door));
                    if hearing == Hearing::Gone {
                        return Error::Deaf;
                    }
                    match asked {
                        Ok(state) => {
                            misses = 0;
                            health(if hearing == Hearing::Good { state } else { NOT_ANSWERING });
                        }
                        Err(error) if error.fault() == Fault::Fatal => return error,
                        Err(error) => {
                            misses += 1;
                            warn!(platform = "telegram", misses, %error, "nothing heard about the webhook");
                            health(Health::Degraded { reason: error.code() });
                            if misses >= MISSES {
                                return Error::Unreachable(Box::new(error));
                            }
                        }
                    }
                }
            }
        }
    }

    /// How Telegram's calls fare. An address that is not ours any more is made ours again.
    async fn ask(&self, door: &Door) -> Result<Health, Error> {
        let info: Info = self.talk.call("getWebhookInfo", &json!({}), self.config.request_timeout).await?;
        if Url::parse(&info.url).ok().as_ref() != Some(&door.url) {
            warn!(platform = "telegram", "the webhook is not ours any more; setting it again");
            self.set_webhook(door).await?;
            return Ok(Health::Polling);
        }
        match info.last_error_message {
            Some(error) if info.pending_update_count > 0 => {
                let (error, pending) = (self.config.token.redact(&error), info.pending_update_count);
                warn!(platform = "telegram", pending, error, "Telegram cannot deliver to the webhook");
                Ok(Health::Degraded { reason: "telegram_webhook_failing" })
            }
            Some(_) | None => Ok(Health::Polling),
        }
    }

    async fn set_webhook(&self, door: &Door) -> Result<(), Error> {
        let parameters = json!({
            "url": door.url.as_str(),
            "secret_token": door.secret.expose(),
            "allowed_updates": WANTED,
            "drop_pending_updates": false,
        });
        let set: Result<Value, Error> =
            self.talk.call("setWebhook", &parameters, self.config.request_timeout).await;
        match set {
            Ok(_true) => Ok(()),
            Err(Error::Answered { code: 400, description, .. }) => Err(Error::Webhook(description)),
            Err(error) => Err(error),
        }
    }
}

/// What Telegram's requests are dealt with by. One for each connection of the link.
#[derive(Debug)]
struct Desk {
    path: String,
    secret: Secret,
    platform: Platform,
    gate: Arc<Gate>,
    me: Me,
    /// One update at a time, in the order in which they came.
    intake: Mutex<Intake>,
    bell: Bell,
}

/// Whoever may not call learns nothing about what comes later.
async fn answer(desk: Arc<Desk>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if is_question(&parts.method, parts.uri.path()) {
        return healthy("telegram");
    }
    if parts.uri.path() != desk.path {
        return refused(StatusCode::NOT_FOUND, "not found");
    }
    if parts.method != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "updates are posted");
    }
    if !desk.is_telegram(&parts.headers) {
        info!(platform = "telegram", "a call to the webhook without the secret");
        return refused(StatusCode::UNAUTHORIZED, "the secret is missing or wrong");
    }
    if let Some(seat) = parts.extensions.get::<Seat>() {
        seat.keep();
    }
    match listener::read(&parts, body, MAX_BODY).await {
        Ok(body) => desk.take(&body).await,
        Err(why) => unread(why),
    }
}

impl Desk {
    fn is_telegram(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(SECRET_HEADER);
        shown.is_some_and(|shown| webhook::same(self.secret.expose().as_bytes(), shown.as_bytes()))
    }

    async fn take(&self, body: &Bytes) -> Response {
        // Broken UTF-8 in a name must not cost the message.
        let text = String::from_utf8_lossy(body);
        let update = serde_json::from_str::<Box<RawValue>>(&text).ok();
        let (events, unreadable) = match update.filter(|raw| parse::number(raw).is_some()) {
            Some(update) => sorted(&[update], self.platform, &self.me, &self.gate),
            None => {
                warn!(platform = "telegram", bytes = body.len(), "unreadable call set aside");
                (vec![], vec![Unreadable::new(None, "it is no update: it has no update_id", &text)])
            }
        };
        let cursor = Some(ALL_THAT_IS_LEFT.to_owned());
        let taken = self.intake.lock().await.offer(events, unreadable, cursor).await;
        match taken {
            Ok(Taken::Committed | Taken::Known) => {
                self.bell.ring(News::Heard);
                listener::json(StatusCode::OK, &json!({}))
            }
            Ok(Taken::NotTaken | Taken::Unfit | Taken::NoHome | Taken::Closed(_))
            | Err(NotTaken::Refused | NotTaken::Unfit) => {
                self.bell.ring(News::NotTaken);
                later(refused(StatusCode::SERVICE_UNAVAILABLE, "could not be kept"), SOON)
            }
            Err(NotTaken::Closed) => {
                self.bell.ring(News::Gone);
                later(refused(StatusCode::SERVICE_UNAVAILABLE, "gateway_stopping"), SOON)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_fakes::Telegram as Fake;

    use super::*;

    #[tokio::test]
    async fn a_listener_that_does_not_answer_ends_the_link_at_the_third_question() {
        let fake = Fake::start().expect("a fake");
        let mut config = Config::new(Secret::new("123:abc"));
        config.base_url = format!("{}/bot", fake.url());
        config.webhook = Some(WebhookConfig {
            secret: Some(Secret::new("s3cret")),
            beat: Duration::from_millis(5),
            ..WebhookConfig::new("http://127.0.0.1:9/tg")
        });
        let telegram = Telegram::new(config).expect("valid");
        let door = telegram.door.as_ref().expect("a door");
        let listener = Listener::bind(&Place { port: 0, ..door.place.clone() }).await.expect("a port");
        let (_bell, news) = Bell::new();
        let mut told = Vec::new();
        // Nobody serves: callers get through to the port, and no further.
        let own = (&listener, Echo::new("telegram", door.beat).within(Duration::from_millis(50)));
        let error = telegram.watch(door, own, news, &mut |state| told.push(state)).await;
        assert_eq!(
            (error.code(), error.fault()),
            ("telegram_webhook_not_answering", Fault::Later { after: None })
        );
        assert_eq!(told, vec![NOT_ANSWERING; 2]);
        assert_eq!(fake.calls_of("getWebhookInfo").len(), 3, "Telegram itself is well");
    }
}
