//! Webhook delivery: posts updates to the configured address, oldest first, until each gets a 2xx.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::error::{MethodResult, ServiceError};
use super::params::Params;
use super::state::State;

/// Between two attempts; the real service waits longer.
const RETRY_PAUSE: Duration = Duration::from_millis(30);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The webhook that `setWebhook` configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Webhook {
    pub(crate) url: String,
    secret: Option<String>,
    last_error: Option<String>,
}

impl Webhook {
    pub(crate) fn at(url: String) -> Self {
        Self { url, ..Self::default() }
    }
}

/// One attempt to deliver an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookPost {
    pub update_id: i64,
    /// `None`: no response.
    pub status: Option<u16>,
}

pub(crate) fn set(state: &mut State, params: &Params) -> MethodResult {
    let url = params.str("url").unwrap_or_default().to_owned();
    if url.is_empty() {
        return Ok(delete(state, params));
    }
    if !url.starts_with("http://127.0.0.1:") {
        return Err(ServiceError::bad_request("bad webhook: an address of this machine must be provided"));
    }
    if params.flag("drop_pending_updates") {
        state.updates.drop_pending();
    }
    if let Some(kinds) = params.json("allowed_updates") {
        state.updates.allow(&kinds);
    }
    let secret = params.str("secret_token").map(str::to_owned);
    state.webhook = Some(Webhook { url, secret, last_error: None });
    Ok(true.into())
}

pub(crate) fn delete(state: &mut State, params: &Params) -> Value {
    if params.flag("drop_pending_updates") {
        state.updates.drop_pending();
    }
    state.webhook = None;
    true.into()
}

pub(crate) fn info(state: &State) -> Value {
    let webhook = state.webhook.clone().unwrap_or_default();
    let mut info = json!({
        "url": webhook.url,
        "has_custom_certificate": false,
        "pending_update_count": state.updates.pending(),
    });
    if let Some(error) = webhook.last_error {
        info["last_error_message"] = error.into();
    }
    info
}

/// Delivers for as long as the fake lives.
pub(crate) async fn deliver(shared: Arc<Shared>) {
    loop {
        let woken = shared.changed.notified();
        tokio::pin!(woken);
        // From here on no notification is missed.
        woken.as_mut().enable();
        let next = shared.state.read(|state| state.webhook.clone().zip(state.updates.first()));
        let Some((webhook, (update_id, body))) = next else {
            woken.await;
            continue;
        };
        let status = timeout(RESPONSE_TIMEOUT, post(&webhook, &body)).await.ok().flatten();
        let delivered = status.is_some_and(|status| (200..300).contains(&status));
        shared.state.change(|state| {
            state.posts.push(WebhookPost { update_id, status });
            if delivered {
                state.updates.remove(update_id);
            } else if let Some(webhook) = &mut state.webhook {
                webhook.last_error = Some(match status {
                    Some(status) => format!("Wrong response from the webhook: {status}"),
                    None => "Connection refused".to_owned(),
                });
            }
        });
        if !delivered {
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// Returns the status of the response, if there is one.
async fn post(webhook: &Webhook, body: &str) -> Option<u16> {
    let (host, path) = webhook.url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).await.ok()?;
    let secret = webhook.secret.as_ref();
    let secret = secret.map(|it| format!("X-Telegram-Bot-Api-Secret-Token: {it}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{secret}Content-Length: \
         {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.ok()?;
    String::from_utf8_lossy(&response).split(' ').nth(1)?.parse().ok()
}
