//! What is read teaches us where chats are and which threads are ours.

use petasos_core::message::ChatType;
use serde_json::value::RawValue;

use super::Slack;
use super::memory::{self, Memory, Place};
use super::parse::{self, Knowledge, Read, Unreadable};
use super::wire::Frame;

impl Slack {
    /// What an envelope says to us.
    pub(super) fn read(&self, frame: &Frame) -> Result<Option<Read>, Unreadable> {
        self.understand(|known| parse::envelope(frame, known))
    }

    /// The same for a message that we fetched ourselves; `place` is its workspace and channel.
    pub(super) fn read_fetched(
        &self,
        raw: &RawValue,
        place: (&str, &str),
    ) -> Result<Option<Read>, Unreadable> {
        self.understand(|known| parse::fetched(raw, place, known))
    }

    /// Whether such a message says anything to us; nothing is learnt from it.
    pub(super) fn concerns_us(&self, raw: &RawValue, place: (&str, &str)) -> bool {
        let read =
            self.known(&self.memory(), |known| parse::fetched(raw, place, known).map(|read| read.is_some()));
        // What cannot be read is set aside, not passed over.
        read.unwrap_or(true)
    }

    fn understand(
        &self,
        parse: impl FnOnce(&Knowledge<'_>) -> Result<Option<Read>, Unreadable>,
    ) -> Result<Option<Read>, Unreadable> {
        let mut memory = self.memory();
        let read = self.known(&memory, parse)?;
        if let Some(read) = &read {
            memory.learn(read);
        }
        Ok(read)
    }

    fn known<T>(&self, memory: &Memory, parse: impl FnOnce(&Knowledge<'_>) -> T) -> T {
        parse(&Knowledge {
            platform: self.platform,
            config: &self.config,
            gate: &self.gate,
            teams: &memory.teams,
            takes_part: &|channel, thread| memory.takes_part(channel, thread),
        })
    }
}

impl Memory {
    fn learn(&mut self, Read { event, called, .. }: &Read) {
        let source = &event.source;
        let (Some(channel), Some(team)) = (&source.chat_id, &source.scope_id) else { return };
        self.places.put(channel.clone(), Place { team: team.clone(), channel: channel.clone() });
        if let Some(message) = source.message_id.as_ref().filter(|_| *called) {
            self.calls.put(memory::key(channel, message), ());
        }
        if let (ChatType::Group, Some(thread)) = (source.chat_type, &source.thread_id) {
            if source.message_id.as_ref() == Some(thread) {
                self.join(channel, thread);
            } else {
                self.enter(channel, thread);
            }
        }
    }
}
