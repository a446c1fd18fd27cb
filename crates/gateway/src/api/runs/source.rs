//! The source of API runs.
//!
//! Every route that starts the agent goes through [`RunSource::new`]. It fixes the channel, so no route can claim that something may be
//! delivered after the answer: `channels.rs` decides that by channel.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::session::{KeyOptions, session_key};
use petasos_core::{Inbound, Platform, RunId, SessionKey, Source};

#[derive(Debug, Clone)]
pub(super) struct RunSource(Source);

impl RunSource {
    /// `chat`: the conversation; `owner`: the credential. `None`: no run, the source of a new session.
    pub(super) fn new(chat: &str, owner: &str, run: Option<&RunId>) -> Self {
        // `Webhook`: the text is never a command, and the message waits instead of being refused.
        let room = Source::new(Platform::API_SERVER, ChatType::Webhook, chat);
        Self(Source { user_name: Some(owner.to_owned()), message_id: run.map(ToString::to_string), ..room })
    }

    pub(super) fn key(&self, options: &KeyOptions) -> SessionKey {
        session_key(&self.0, options)
    }

    pub(super) fn source(&self) -> &Source {
        &self.0
    }

    pub(super) fn inbound(self, text: String, attachments: Vec<Attachment>) -> Inbound {
        let dedup = self.0.message_id.clone().unwrap_or_default();
        Inbound { attachments, ..Inbound::new(self.0, dedup, text) }
    }
}

/// The run that this message started.
pub(crate) fn run_of(platform: Platform, message_id: Option<&String>) -> Option<RunId> {
    message_id.filter(|_| platform == Platform::API_SERVER).map(|id| RunId(id.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::channels::Channels;

    #[test]
    fn api_runs_never_deliver_after_the_answer() {
        let channels = Channels::new(vec![]);
        for (chat, owner, run) in [("", "", ""), ("telegram:1", "telegram", "run_1"), ("s", "default", "web")]
        {
            let run = RunId::from(run);
            let source = RunSource::new(chat, owner, Some(&run));
            let platform = source.source().platform;
            assert_eq!(run_of(platform, source.source().message_id.as_ref()), Some(run.clone()));
            assert_eq!(run_of(Platform::CRON, source.source().message_id.as_ref()), None);
            assert!(!channels.capabilities(platform).async_delivery);
            let inbound = source.inbound("/stop".into(), vec![]);
            assert!(!inbound.internal && inbound.reply_route.is_none());
        }
    }
}
