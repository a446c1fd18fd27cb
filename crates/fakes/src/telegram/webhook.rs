//! The webhook: updates are posted to the address that was set, oldest first, and again until a 2xx comes back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::params::Params;
use super::refusal::{Answer, Refusal};
use super::world::World;

/// Between two tries of one update; the real service takes longer.
const REST: Duration = Duration::from_millis(30);
/// How long an answer may take before the try counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `setWebhook` set, and how it fares.
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

/// One try to deliver an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub update_id: i64,
    /// `None`: nobody answered.
    pub status: Option<u16>,
}

pub(crate) fn set(world: &mut World, params: &Params) -> Answer {
    let url = params.str("url").unwrap_or_default().to_owned();
    if url.is_empty() {
        return Ok(delete(world, params));
    }
    if !url.starts_with("http://127.0.0.1:") {
        return Err(Refusal::bad("bad webhook: an address of this machine must be provided"));
    }
    if params.flag("drop_pending_updates") {
        world.updates.drop_pending();
    }
    if let Some(kinds) = params.json("allowed_updates") {
        world.updates.allow(&kinds);
    }
    let secret = params.str("secret_token").map(str::to_owned);
    world.webhook = Some(Webhook { url, secret, last_error: None });
    Ok(true.into())
}

pub(crate) fn delete(world: &mut World, params: &Params) -> Value {
    if params.flag("drop_pending_updates") {
        world.updates.drop_pending();
    }
    world.webhook = None;
    true.into()
}

pub(crate) fn info(world: &World) -> Value {
    let webhook = world.webhook.clone().unwrap_or_default();
    let mut info = json!({
        "url": webhook.url,
        "has_custom_certificate": false,
        "pending_update_count": world.updates.pending(),
    });
    if let Some(error) = webhook.last_error {
        info["last_error_message"] = error.into();
    }
    info
}

/// Delivers for as long as the fake lives.
pub(crate) async fn deliver(shared: Arc<Shared>) {
    loop {
        let rung = shared.bell.notified();
        tokio::pin!(rung);
        // From here on no bell is missed.
        rung.as_mut().enable();
        let due = shared.world.read(|world| world.webhook.clone().zip(world.updates.first()));
        let Some((webhook, (update_id, body))) = due else {
            rung.await;
            continue;
        };
        let status = timeout(PATIENCE, post(&webhook, &body)).await.ok().flatten();
        let good = status.is_some_and(|status| (200..300).contains(&status));
        shared.world.change(|world| {
            world.posts.push(Post { update_id, status });
            if good {
                world.updates.delivered(update_id);
            } else if let Some(webhook) = &mut world.webhook {
                webhook.last_error = Some(match status {
                    Some(status) => format!("Wrong response from the webhook: {status}"),
                    None => "Connection refused".to_owned(),
                });
            }
        });
        if !good {
            sleep(REST).await;
        }
    }
}

/// The status of the answer, if there is one.
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
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}
