//! The one way in for what programs ask over HTTP.
//!
//! Every route that starts the agent goes through [`Bound::new`]. It names the channel itself and takes nothing that
//! could change it, so whether something can be delivered after the answer (it cannot) is not a caller's to say:
//! `channels.rs` knows it of the channel.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Platform, SessionKey, Source};

use petasos_core::session::{KeyOptions, session_key};

/// Who asks, where, and under which name.
#[derive(Debug, Clone)]
pub(super) struct Bound(Source);

impl Bound {
    /// `chat`: the conversation. `owner`: the credential. `run`: the name by which the caller comes back.
    pub(super) fn new(chat: &str, owner: &str, run: &str) -> Self {
        // What a program sends is text, whatever it begins with, and it waits rather than being turned away.
        let room = Source::new(Platform::API_SERVER, ChatType::Webhook, chat);
        Self(Source { user_name: Some(owner.to_owned()), message_id: Some(run.to_owned()), ..room })
    }

    /// The conversation's own key, if it has no older one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::channels::Channels;

    #[test]
    fn whatever_is_bound_nothing_can_be_delivered_after_the_answer() {
        let channels = Channels::new(vec![]);
        for (chat, owner, run) in [("", "", ""), ("telegram:1", "telegram", "run_1"), ("s", "default", "web")]
        {
            let bound = Bound::new(chat, owner, run);
            assert_eq!(bound.source().platform, Platform::API_SERVER);
            assert!(!channels.capabilities(bound.source().platform).async_delivery);
            let inbound = bound.inbound("/stop".into(), vec![]);
            assert!(!inbound.internal && inbound.answer_to.is_none());
        }
    }
}
