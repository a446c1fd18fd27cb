//! Parses envelopes and fetched messages, and records chats and threads from them.

use petasos_core::message::ChatType;
use serde_json::value::RawValue;

use super::parse::{self, ParseContext, ParseError, ParsedEnvelope};
use crate::slack::Slack;
use crate::slack::state::{ChatLocation, SlackState, message_key};
use crate::slack::wire::SocketFrame;

impl Slack {
    pub(in crate::slack) fn parse_live(
        &self,
        frame: &SocketFrame,
    ) -> Result<Option<ParsedEnvelope>, ParseError> {
        self.parse_and_record(|context| parse::envelope(frame, context))
    }

    /// `location`: workspace and channel of the message.
    pub(in crate::slack) fn parse_fetched(
        &self,
        raw: &RawValue,
        location: (&str, &str),
    ) -> Result<Option<ParsedEnvelope>, ParseError> {
        self.parse_and_record(|context| parse::history_message(raw, location, context))
    }

    /// Records nothing.
    pub(in crate::slack) fn is_for_bot(&self, raw: &RawValue, location: (&str, &str)) -> bool {
        let parsed = self.with_context(&self.state(), |context| {
            parse::history_message(raw, location, context).map(|parsed| parsed.is_some())
        });
        // Unreadable messages are stored, not skipped.
        parsed.unwrap_or(true)
    }

    fn parse_and_record(
        &self,
        parse: impl FnOnce(&ParseContext<'_>) -> Result<Option<ParsedEnvelope>, ParseError>,
    ) -> Result<Option<ParsedEnvelope>, ParseError> {
        let mut state = self.state();
        let parsed = self.with_context(&state, parse)?;
        if let Some(parsed) = &parsed {
            state.record_event(parsed);
        }
        Ok(parsed)
    }

    fn with_context<T>(&self, state: &SlackState, parse: impl FnOnce(&ParseContext<'_>) -> T) -> T {
        parse(&ParseContext {
            platform: self.platform,
            config: &self.config,
            filter: &self.filter,
            workspaces: &state.workspaces,
            is_own_thread: &|channel, thread| state.is_own_thread(channel, thread),
        })
    }
}

impl SlackState {
    fn record_event(&mut self, ParsedEnvelope { event, addressed, .. }: &ParsedEnvelope) {
        let source = &event.source;
        let (Some(channel), Some(team)) = (&source.chat_id, &source.scope_id) else { return };
        self.chats.insert(channel.clone(), ChatLocation { team: team.clone(), channel: channel.clone() });
        if let Some(message) = source.message_id.as_ref().filter(|_| *addressed) {
            self.addressed.insert(message_key(channel, message), ());
        }
        if let (ChatType::Group, Some(thread)) = (source.chat_type, &source.thread_id) {
            if source.message_id.as_ref() == Some(thread) {
                self.add_thread(channel, thread);
            } else {
                self.add_existing_thread(channel, thread);
            }
        }
    }
}
