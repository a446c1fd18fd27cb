//! Creates threads for answers.

use petasos_core::rate_limit::PenaltyScope;
use petasos_core::{Fault, Inbound};
use serde_json::json;
use tracing::warn;

use crate::discord::{Discord, Error, wire};

pub(in crate::discord) struct OpenedThread {
    pub(in crate::discord) id: u64,
    /// `None`: it already existed.
    pub(in crate::discord) channel: Option<wire::DiscordChannel>,
}

impl Discord {
    pub(in crate::discord) async fn open_thread(
        &self,
        channel: u64,
        message: u64,
        name: &str,
    ) -> Result<OpenedThread, Error> {
        let path = format!("/channels/{channel}/messages/{message}/threads");
        let body = json!({ "name": name, "auto_archive_duration": 1440 });
        match self.limited(channel, self.api.post::<wire::DiscordChannel>(&path, &body)).await {
            Ok(thread) => Ok(OpenedThread { id: thread.id.get(), channel: Some(thread) }),
            // A thread created from a message has the message's id.
            Err(error) if error.is_thread_already_open() => Ok(OpenedThread { id: message, channel: None }),
            Err(error) => Err(error),
        }
    }

    /// After a permanent refusal the author gets a notice and the message is dropped. If the request may
    /// succeed later, or the notice fails, the message is answered in its channel.
    pub(in crate::discord) async fn handle_thread_failure(
        &self,
        inbound: Inbound,
        channel: u64,
        message: u64,
        error: &Error,
    ) -> Option<Inbound> {
        warn!(platform = "discord", channel, %error, "cannot create a thread");
        if let Fault::Later { .. } = error.fault() {
            return Some(inbound);
        }
        self.notify_thread_failed(channel, message).await.is_err().then_some(inbound)
    }

    /// `Adapter` does not see requests made by the link, so their chat's rate limits are checked and recorded
    /// here.
    pub(in crate::discord) async fn limited<T>(
        &self,
        channel: u64,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let scope = PenaltyScope::Chat(channel.to_string());
        self.limits.check(self.platform, &scope)?;
        let result = request.await;
        if let Err(error) = &result
            && !error.is_penalized()
            && let Fault::Later { after: Some(wait) } = error.fault()
        {
            self.limits.record(self.platform, scope, wait, &error.to_string());
        }
        result
    }
}
