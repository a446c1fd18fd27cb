//! A thread of its own for a message that is to be answered in one.

use petasos_core::rate_limit::Scope;
use petasos_core::{Fault, Inbound};
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
        match self.limited(channel, self.api.post::<wire::Channel>(&path, &body)).await {
            Ok(thread) => Ok(Opened { id: thread.id.get(), channel: Some(thread) }),
            // A thread that grows from a message has the message's number.
            Err(error) if error.is_thread_there() => Ok(Opened { id: message, channel: None }),
            Err(error) => Err(error),
        }
    }

    /// None could be opened. If Discord refuses for good, the author is told and the message is dropped. If the request
    /// may succeed later, or the author cannot be told, the message is answered where it stands.
    pub(super) async fn without_thread(
        &self,
        inbound: Inbound,
        channel: u64,
        message: u64,
        error: &Error,
    ) -> Option<Inbound> {
        warn!(platform = "discord", channel, %error, "no thread could be opened");
        if let Fault::Later { .. } = error.fault() {
            return Some(inbound);
        }
        self.excuse(channel, message).await.is_err().then_some(inbound)
    }

    /// `Adapter` does not see requests that the link makes on its own: their channel's rate limits are checked and recorded
    /// here.
    pub(super) async fn limited<T>(
        &self,
        channel: u64,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let scope = Scope::Chat(channel.to_string());
        self.limits.check(self.platform, &scope)?;
        let answered = request.await;
        if let Err(error) = &answered
            && !error.is_held()
            && let Fault::Later { after: Some(wait) } = error.fault()
        {
            self.limits.record(self.platform, scope, wait, &error.to_string());
        }
        answered
    }
}
