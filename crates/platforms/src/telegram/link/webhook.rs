//! Webhook link: Telegram gets a 200 only after the gateway has committed.
//!
//! Telegram retries everything else, in order per chat; the inbox deduplicates. Since calls may be rare, the
//! link periodically checks its own listener (`self_check.rs`) and asks Telegram for the webhook's status.
//! Unreadable updates are stored and answered with 200: otherwise Telegram would repeat them for ever and
//! send nothing after them.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use petasos_core::{Fault, Platform};
use petasos_runtime::clock;
use reqwest::Url;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::{ALLOWED_UPDATES, parse_updates};
use crate::inbound::{CommitError, CommitResult, InboundSink, LinkHealth, Unreadable};
use crate::listener::self_check::{
    LinkSignal, SelfCheck, SelfCheckResult, SignalSender, health_response, is_health_check,
};
use crate::listener::{
    self, ConnectionSlot, ListenAddress, Listener, Request, body_error_response, error_response,
    with_retry_after,
};
use crate::telegram::filter::MessageFilter;
use crate::telegram::wire::BotUser;
use crate::telegram::{Config, Error, Telegram, TelegramConfigError, is_own_server, parse};
use crate::{Secret, webhook};

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";
const MAX_SECRET: usize = 256;
/// Real updates have a few kilobytes.
const MAX_BODY: usize = 1 << 20;
/// `Retry-After` when a commit failed.
const RETRY_SECONDS: u64 = 5;
/// Failed status requests in a row that end the link.
const MAX_MISSES: u32 = 3;
/// Stored cursor of a webhook link, for a later switch to polling. Telegram drops updates below a polled
/// offset, so it must not exceed one that we could not store.
const OLDEST_PENDING: &str = "0";

const SELF_CHECK_FAILING: LinkHealth = LinkHealth::Degraded { reason: "telegram_webhook_not_answering" };

/// Webhook settings. A missing secret is rejected by validation.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Public address; its path selects the listener's path.
    pub url: String,
    pub secret: Option<Secret>,
    pub host: String,
    pub port: u16,
    /// How often Telegram is asked for the webhook's status.
    pub check_interval: Duration,
}

impl WebhookConfig {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            secret: None,
            host: "127.0.0.1".to_owned(),
            port: 8443,
            check_interval: Duration::from_secs(30),
        }
    }
}

/// Validated settings.
#[derive(Debug)]
pub(in crate::telegram) struct WebhookEndpoint {
    url: Url,
    secret: Secret,
    listen: ListenAddress,
    check_interval: Duration,
}

impl WebhookEndpoint {
    pub(in crate::telegram) fn new(
        webhook: &WebhookConfig,
        config: &Config,
    ) -> Result<Self, TelegramConfigError> {
        let secret = webhook.secret.clone().ok_or(TelegramConfigError::NoWebhookSecret)?;
        if !is_secret(secret.expose()) {
            return Err(TelegramConfigError::WebhookSecret);
        }
        // Only a custom Bot API server may call without HTTPS.
        let fits = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && is_own_server(config));
        let url = Url::parse(&webhook.url).ok().filter(|url| url.has_host() && fits(url));
        Ok(Self {
            url: url.ok_or_else(|| TelegramConfigError::WebhookUrl(config.token.redact(&webhook.url)))?,
            secret,
            listen: ListenAddress {
                host: webhook.host.clone(),
                port: webhook.port,
                port_key: "TELEGRAM_WEBHOOK_PORT",
            },
            check_interval: webhook.check_interval,
        })
    }
}

fn is_secret(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= MAX_SECRET && text.bytes().all(plain)
}

#[derive(Debug, Deserialize)]
struct WebhookStatus {
    url: String,
    #[serde(default)]
    pending_update_count: u64,
    last_error_message: Option<String>,
}

impl Telegram {
    pub(in crate::telegram) async fn receive_by_webhook(
        &self,
        endpoint: &WebhookEndpoint,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        health(LinkHealth::Connecting);
        let me = match self.get_me().await {
            Ok(me) => me,
            Err(error) => return error,
        };
        let listener = match Listener::bind(&endpoint.listen).await {
            Ok(listener) => listener,
            Err(error) => return error.into(),
        };
        info!(
            platform = "telegram",
            bot = me.username,
            port = endpoint.listen.port,
            "listening for the webhook"
        );
        let (signals, receiver) = SignalSender::new();
        let handler = Arc::new(UpdateHandler {
            path: endpoint.url.path().to_owned(),
            secret: endpoint.secret.clone(),
            platform: self.platform,
            filter: self.filter.clone(),
            me,
            sink: Mutex::new(sink.clone()),
            signals,
        });
        tokio::select! {
            never = listener.serve(move |request| handle_request(handler.clone(), request)) => match never {},
            error = self.watch(endpoint, (&listener, SelfCheck::new("telegram", endpoint.check_interval)), receiver, health) => error,
        }
    }

    async fn watch(
        &self,
        endpoint: &WebhookEndpoint,
        (listener, mut self_check): (&Listener, SelfCheck),
        mut signals: mpsc::Receiver<LinkSignal>,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        if let Err(error) = self.set_webhook(endpoint).await {
            return error;
        }
        let mut misses = 0;
        let mut next = clock::monotonic();
        loop {
            let signal = tokio::select! {
                signal = signals.recv() => signal,
                () = sleep_until(next) => None,
            };
            match signal {
                Some(LinkSignal::RequestHandled) => {
                    self_check.reset();
                    health(LinkHealth::Connected);
                }
                Some(LinkSignal::NotStored) => health(LinkHealth::Degraded { reason: "telegram_not_taken" }),
                Some(LinkSignal::GatewayClosed) => return Error::Closed,
                None => {
                    next = clock::monotonic() + self_check.interval;
                    let (check, webhook) =
                        tokio::join!(self_check.run(listener), self.check_webhook(endpoint));
                    if check == SelfCheckResult::Failed {
                        return Error::SelfCheckFailed;
                    }
                    match webhook {
                        Ok(state) => {
                            misses = 0;
                            health(if check == SelfCheckResult::Responding {
                                state
                            } else {
                                SELF_CHECK_FAILING
                            });
                        }
                        Err(error) if error.fault() == Fault::Fatal => return error,
                        Err(error) => {
                            misses += 1;
                            warn!(platform = "telegram", misses, %error, "webhook status request failed");
                            health(LinkHealth::Degraded { reason: error.code() });
                            if misses >= MAX_MISSES {
                                return Error::Unreachable(Box::new(error));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Webhook status at Telegram. A foreign address is replaced by ours.
    async fn check_webhook(&self, endpoint: &WebhookEndpoint) -> Result<LinkHealth, Error> {
        let info: WebhookStatus =
            self.api.call("getWebhookInfo", &json!({}), self.config.request_timeout).await?;
        if Url::parse(&info.url).ok().as_ref() != Some(&endpoint.url) {
            warn!(platform = "telegram", "webhook was replaced; setting it again");
            self.set_webhook(endpoint).await?;
            return Ok(LinkHealth::Connected);
        }
        match info.last_error_message {
            Some(error) if info.pending_update_count > 0 => {
                let error = self.config.token.redact(&error);
                let pending = info.pending_update_count;
                warn!(platform = "telegram", pending, error, "Telegram cannot deliver to the webhook");
                Ok(LinkHealth::Degraded { reason: "telegram_webhook_failing" })
            }
            Some(_) | None => Ok(LinkHealth::Connected),
        }
    }

    async fn set_webhook(&self, endpoint: &WebhookEndpoint) -> Result<(), Error> {
        let parameters = json!({
            "url": endpoint.url.as_str(),
            "secret_token": endpoint.secret.expose(),
            "allowed_updates": ALLOWED_UPDATES,
            "drop_pending_updates": false,
        });
        let set: Result<Value, Error> =
            self.api.call("setWebhook", &parameters, self.config.request_timeout).await;
        match set {
            Ok(_true) => Ok(()),
            Err(Error::Answered { code: 400, description, .. }) => Err(Error::Webhook(description)),
            Err(error) => Err(error),
        }
    }
}

/// Handles Telegram's requests, one per link.
#[derive(Debug)]
struct UpdateHandler {
    path: String,
    secret: Secret,
    platform: Platform,
    filter: Arc<MessageFilter>,
    me: BotUser,
    /// Serialises updates in order of arrival.
    sink: Mutex<InboundSink>,
    signals: SignalSender,
}

/// Unauthenticated callers get no further information.
async fn handle_request(handler: Arc<UpdateHandler>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if is_health_check(&parts.method, parts.uri.path()) {
        return health_response("telegram");
    }
    if parts.uri.path() != handler.path {
        return error_response(StatusCode::NOT_FOUND, "not found");
    }
    if parts.method != Method::POST {
        return error_response(StatusCode::METHOD_NOT_ALLOWED, "updates must be sent with POST");
    }
    if !handler.has_secret(&parts.headers) {
        info!(platform = "telegram", "webhook request without the secret");
        return error_response(StatusCode::UNAUTHORIZED, "the secret is missing or wrong");
    }
    if let Some(slot) = parts.extensions.get::<ConnectionSlot>() {
        slot.mark_authenticated();
    }
    match listener::read_body(&parts, body, MAX_BODY).await {
        Ok(body) => handler.accept_update(&body).await,
        Err(error) => body_error_response(error),
    }
}

impl UpdateHandler {
    fn has_secret(&self, headers: &HeaderMap) -> bool {
        let header = headers.get(SECRET_HEADER);
        header.is_some_and(|header| {
            webhook::constant_time_eq(self.secret.expose().as_bytes(), header.as_bytes())
        })
    }

    async fn accept_update(&self, body: &Bytes) -> Response {
        // Broken UTF-8 in a name must not lose the message.
        let text = String::from_utf8_lossy(body);
        let update = serde_json::from_str::<Box<RawValue>>(&text).ok();
        let (events, unreadable) = match update.filter(|raw| parse::update_id(raw).is_some()) {
            Some(update) => parse_updates(&[update], self.platform, &self.me, &self.filter),
            None => {
                warn!(platform = "telegram", bytes = body.len(), "unreadable webhook request stored");
                (vec![], vec![Unreadable::new(None, "not an update: update_id is missing", &text)])
            }
        };
        let cursor = Some(OLDEST_PENDING.to_owned());
        let committed = self.sink.lock().await.offer(events, unreadable, cursor).await;
        match committed {
            Ok(CommitResult::Committed | CommitResult::Duplicate) => {
                self.signals.send(LinkSignal::RequestHandled);
                listener::json_response(StatusCode::OK, &json!({}))
            }
            Ok(
                CommitResult::NotStored
                | CommitResult::Invalid
                | CommitResult::NoHomeChannel
                | CommitResult::Closed(_),
            )
            | Err(CommitError::Refused | CommitError::Invalid) => {
                self.signals.send(LinkSignal::NotStored);
                with_retry_after(
                    error_response(StatusCode::SERVICE_UNAVAILABLE, "could not be stored; try again"),
                    RETRY_SECONDS,
                )
            }
            Err(CommitError::Closed) => {
                self.signals.send(LinkSignal::GatewayClosed);
                with_retry_after(
                    error_response(StatusCode::SERVICE_UNAVAILABLE, "gateway_stopping"),
                    RETRY_SECONDS,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_fakes::Telegram as Fake;

    use super::*;

    #[tokio::test]
    async fn ends_the_link_after_three_failed_self_checks() {
        let fake = Fake::start().expect("a fake");
        let mut config = Config::new(Secret::new("123:abc"));
        config.base_url = format!("{}/bot", fake.url());
        config.webhook = Some(WebhookConfig {
            secret: Some(Secret::new("s3cret")),
            check_interval: Duration::from_millis(5),
            ..WebhookConfig::new("http://127.0.0.1:9/tg")
        });
        let telegram = Telegram::new(config).expect("valid");
        let endpoint = telegram.endpoint.as_ref().expect("an endpoint");
        let listener =
            Listener::bind(&ListenAddress { port: 0, ..endpoint.listen.clone() }).await.expect("a port");
        let (_bell, received) = SignalSender::new();
        let mut states = Vec::new();
        // Connections succeed, but no request is served.
        let own = (
            &listener,
            SelfCheck::new("telegram", endpoint.check_interval).within(Duration::from_millis(50)),
        );
        let error = telegram.watch(endpoint, own, received, &mut |state| states.push(state)).await;
        assert_eq!(
            (error.code(), error.fault()),
            ("telegram_webhook_not_answering", Fault::Later { after: None })
        );
        assert_eq!(states, vec![SELF_CHECK_FAILING; 2]);
        assert_eq!(fake.calls_of("getWebhookInfo").len(), 3, "Telegram itself is well");
    }
}
