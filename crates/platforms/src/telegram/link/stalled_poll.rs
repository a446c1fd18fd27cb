//! Stalled-poll detection: a poll can hang on a connection that only a proxy still considers alive.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tracing::debug;

use crate::telegram::wire::WebhookInfo;
use crate::telegram::{Error, Telegram};
use petasos_runtime::clock;

impl Telegram {
    /// Resolves with the number of pending updates when two checks in a row found some and no poll delivered
    /// any between them.
    pub(in crate::telegram) async fn stalled(&self, delivered_updates: &AtomicBool) -> u64 {
        let mut before = 0;
        loop {
            clock::sleep(self.config.stall_check_interval).await;
            let waiting = self.pending_updates().await;
            let delivered_updates = delivered_updates.swap(false, Ordering::Relaxed);
            if before > 0 && waiting > 0 && !delivered_updates {
                return waiting;
            }
            before = waiting;
        }
    }

    /// Zero on failure: the poll will notice the outage.
    async fn pending_updates(&self) -> u64 {
        let info: Result<WebhookInfo, Error> =
            self.api.call("getWebhookInfo", &json!({}), self.config.request_timeout).await;
        match info {
            Ok(info) => info.pending_update_count,
            Err(error) => {
                debug!(platform = "telegram", %error, "cannot read the number of pending updates");
                0
            }
        }
    }
}
