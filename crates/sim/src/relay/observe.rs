//! Reads the connector's queue after every commit, for the checker.

use petasos_relay::Event as Message;
use petasos_store::Reads;

use super::INSTANCE;
use crate::gateway::state::State;
use crate::promise::Promise;
use crate::truth::Check;

impl State {
    /// After a commit of the connector, before its effects.
    pub(crate) fn connector_committed(&mut self, store: &Reads) -> Check {
        let lost = |error: petasos_store::Error| (Promise::G1, format!("the queue cannot be read: {error}"));
        let (entries, _idle) = store.queue_of(&INSTANCE.into()).map_err(lost)?;
        for entry in &entries {
            if self.relay().entries.contains_key(&entry.id) {
                continue;
            }
            let payload = store.payload(&entry.id).map_err(lost)?.map(|(_carries, payload)| payload);
            let number = payload.as_deref().and_then(number_of);
            let number = number.ok_or_else(|| (Promise::G1, format!("{} cannot be read", entry.id)))?;
            self.relay().entries.insert(entry.id.clone(), number);
            if self.world.said[number].buffer.replace(entry.id.clone()).is_some() {
                return Err((Promise::G3, format!("[m{number}] was queued twice")));
            }
        }
        self.relay().queue = entries.into_iter().map(|entry| entry.id).collect();
        for letter in store.dead_letters(1_000).map_err(lost)? {
            self.put_aside(&letter.id)?;
        }
        self.all_kept()
    }

    /// The connector has dead-lettered an entry.
    fn put_aside(&mut self, id: &str) -> Check {
        let Some(number) = self.relay().entries.get(id).copied() else { return Ok(()) };
        if std::mem::replace(&mut self.world.said[number].aside, true) {
            return Ok(());
        }
        let excused = self.relay().stalls + self.figures.jumps;
        if excused < u64::from(self.plan.session.strikes) {
            let what = format!("[m{number}] was put aside, and nothing is wrong with it");
            return Err((Promise::G2, what));
        }
        Ok(())
    }

    /// Every message that the platform has forgotten is in the inbox, in the connector's queue, or a dead letter.
    pub(crate) fn all_kept(&self) -> Check {
        let Some(relay) = &self.relay else { return Ok(()) };
        let queued = |id: &String| relay.queue.contains(id);
        let lost = self.world.said.iter().find(|said| {
            let kept = said.inbox.is_some() || said.aside || said.buffer.as_ref().is_some_and(queued);
            said.acked && !kept
        });
        match lost {
            Some(said) => Err((Promise::G1, format!("{} was acknowledged and is on no disk", said.text))),
            None => Ok(()),
        }
    }
}

/// The number of the message in an entry.
fn number_of(payload: &str) -> Option<usize> {
    let event = serde_json::from_str(payload).ok()?;
    let message = Message::read(&event).ok()?.message_id?;
    message.strip_prefix("in")?.parse().ok()
}
