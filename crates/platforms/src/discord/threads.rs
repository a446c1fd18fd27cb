//! A thread of its own for a message that is to be answered in one.

use petasos_core::Inbound;
use serde_json::json;
use tracing::warn;

use super::{Discord, Error, wire};

pub(super) struct Opened {
    pub(super) id: u64,
    /// `None`: it was there before.
    pub(super) channel: Option<wire::Channel>,
}

impl Discord {
    pub(super) async fn open_thread(&self, channel: u64, message: u64, name: &str) -> Result<Opened, Error> {
        let path = format!("/channels/{channel}/messages/{message}/threads");
        let body = json!({ "name": name, "auto_archive_duration": 1440 });
        match self.api.post::<wire::Channel>(&path, &body).await {
            Ok(thread) => Ok(Opened { id: thread.id.get(), channel: Some(thread) }),
            // A thread that grows from a message has the message's number.
            Err(error) if error.is_thread_there() => Ok(Opened { id: message, channel: None }),
            Err(error) => Err(error),
        }
    }

    /// None could be opened: its author is told and it is dropped. If that cannot be said either, it is answered
    /// where it stands.
    pub(super) async fn without_thread(
        &self,
        inbound: Inbound,
        channel: u64,
        message: u64,
        error: &Error,
    ) -> Option<Inbound> {
        warn!(platform = "discord", channel, %error, "no thread could be opened");
        self.excuse(channel, message).await.is_err().then_some(inbound)
    }
}
