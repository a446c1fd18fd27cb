//! Who keeps a drain from being over.

use core::time::Duration;

use serde::Serialize;

use alloc::string::String;

use super::machine::Claim;
use crate::ids::{SessionKey, TurnId};
use crate::time::Millis;

/// A session at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub key: SessionKey,
    pub claim: Claim,
    /// `None`: the claim is made, the turn is not on disk yet.
    pub turn: Option<TurnId>,
    pub since: Millis,
    pub doing: Doing,
    /// Nobody waits for it any more.
    pub skipped: bool,
    /// It may take until then, whatever the deadline of the others.
    pub until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at", content = "tools")]
pub enum Doing {
    Starting,
    Thinking,
    /// Running these tools.
    Acting(alloc::vec::Vec<String>),
}

/// The furthest a deadline can be moved away, so that a stop always ends.
pub const LONGEST_EXTENSION: Duration = Duration::from_secs(900);

impl Holder {
    /// Until when it is waited for; `None`: not at all.
    pub fn patience(&self, deadline: Millis) -> Option<Millis> {
        (!self.skipped).then(|| self.until.map_or(deadline, |until| until.max(deadline)))
    }

    /// Waits longer for it, counted from what was granted so far.
    pub fn extend(&mut self, deadline: Millis, by: Duration) -> Millis {
        let granted = self.until.map_or(deadline, |until| until.max(deadline)).after(by);
        let until = granted.min(deadline.after(LONGEST_EXTENSION));
        self.skipped = false;
        self.until = Some(until);
        until
    }
}

/// When to stop waiting for these; `None`: at once.
pub fn wait_until<'a>(
    holders: impl IntoIterator<Item = &'a Holder>,
    deadline: Millis,
    now: Millis,
) -> Option<Millis> {
    let last = holders.into_iter().filter_map(|holder| holder.patience(deadline)).max();
    last.filter(|last| *last > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder {
            key: SessionKey("k".into()),
            claim: Claim::User,
            turn: None,
            since: Millis(0),
            doing: Doing::Thinking,
            skipped: false,
            until: None,
        }
    }

    const DEADLINE: Millis = Millis(60_000);

    #[test]
    fn a_drain_waits_for_the_last_of_its_holders_and_no_longer_than_the_deadline() {
        assert_eq!(wait_until([], DEADLINE, Millis(0)), None);
        assert_eq!(wait_until([&holder()], DEADLINE, Millis(0)), Some(DEADLINE));
        assert_eq!(wait_until([&holder()], DEADLINE, DEADLINE), None);
    }

    #[test]
    fn a_skipped_holder_is_not_waited_for() {
        let skipped = Holder { skipped: true, ..holder() };
        assert_eq!(wait_until([&skipped], DEADLINE, Millis(0)), None);
        assert_eq!(wait_until([&skipped, &holder()], DEADLINE, Millis(0)), Some(DEADLINE));
    }

    #[test]
    fn an_extension_moves_the_end_for_one_holder_up_to_a_bound() {
        let mut it = Holder { skipped: true, ..holder() };
        assert_eq!(it.extend(DEADLINE, Duration::from_secs(30)), Millis(90_000));
        assert_eq!(wait_until([&it, &holder()], DEADLINE, Millis(70_000)), Some(Millis(90_000)));
        assert_eq!(it.extend(DEADLINE, Duration::from_secs(5)), Millis(95_000));
        assert_eq!(it.extend(DEADLINE, Duration::MAX), DEADLINE.after(LONGEST_EXTENSION));
    }
}
