//! Whether Telegram holds updates that our polls do not bring: a poll can hang on a connection that is dead
//! for us and alive for everybody between.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::time::sleep;
use tracing::debug;

use super::wire::WebhookInfo;
use super::{Error, Telegram};

impl Telegram {
    /// Resolves with how many wait, once some did at two looks in a row and nothing was `brought` between them.
    pub(super) async fn withheld(&self, brought: &AtomicBool) -> u64 {
        let mut before = 0;
        loop {
            sleep(self.config.probe_every).await;
            let waiting = self.waiting().await;
            let brought = brought.swap(false, Ordering::Relaxed);
            if before > 0 && waiting > 0 && !brought {
                return waiting;
            }
            before = waiting;
        }
    }

    /// None as far as we know, if nobody answers: that is for the poll to notice.
    async fn waiting(&self) -> u64 {
        let asked: Result<WebhookInfo, Error> =
            self.talk.call("getWebhookInfo", &json!({}), self.config.request_timeout).await;
        match asked {
            Ok(info) => info.pending_update_count,
            Err(error) => {
                debug!(platform = "telegram", %error, "what waits is not known");
                0
            }
        }
    }
}
