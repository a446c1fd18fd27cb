//! Which turns a drain waits for, and how long.

use core::time::Duration;

use serde::Serialize;

use alloc::string::String;

use super::machine::TurnOrigin;
use crate::ids::{SessionKey, TurnId};
use crate::time::Millis;

/// A turn that is running or about to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveTurn {
    pub key: SessionKey,
    #[serde(rename = "claim")]
    pub origin: TurnOrigin,
    /// `None`: the turn is not committed yet.
    pub turn: Option<TurnId>,
    pub since: Millis,
    #[serde(rename = "doing")]
    pub activity: TurnActivity,
    /// The drain does not wait for it.
    pub skipped: bool,
    /// Individual deadline.
    pub until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at", content = "tools")]
pub enum TurnActivity {
    Starting,
    Thinking,
    /// Running these tools.
    Acting(alloc::vec::Vec<String>),
}

/// Maximum extension of a deadline, so that a stop always ends.
pub const MAX_EXTENSION: Duration = Duration::from_secs(900);

impl ActiveTurn {
    /// How long the drain waits for this turn; `None`: not at all.
    pub fn waited_for_until(&self, deadline: Millis) -> Option<Millis> {
        (!self.skipped).then(|| self.until.map_or(deadline, |until| until.max(deadline)))
    }

    /// Extends the wait, counted from the current deadline.
    pub fn extend(&mut self, deadline: Millis, by: Duration) -> Millis {
        let granted = self.until.map_or(deadline, |until| until.max(deadline)).after(by);
        let until = granted.min(deadline.after(MAX_EXTENSION));
        self.skipped = false;
        self.until = Some(until);
        until
    }
}

/// When the drain stops waiting; `None`: now.
pub fn wait_until<'a>(
    turns: impl IntoIterator<Item = &'a ActiveTurn>,
    deadline: Millis,
    now: Millis,
) -> Option<Millis> {
    let last = turns.into_iter().filter_map(|turn| turn.waited_for_until(deadline)).max();
    last.filter(|last| *last > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> ActiveTurn {
        ActiveTurn {
            key: SessionKey("k".into()),
            origin: TurnOrigin::User,
            turn: None,
            since: Millis(0),
            activity: TurnActivity::Thinking,
            skipped: false,
            until: None,
        }
    }

    const DEADLINE: Millis = Millis(60_000);

    #[test]
    fn waits_for_the_last_turn_up_to_the_deadline() {
        assert_eq!(wait_until([], DEADLINE, Millis(0)), None);
        assert_eq!(wait_until([&turn()], DEADLINE, Millis(0)), Some(DEADLINE));
        assert_eq!(wait_until([&turn()], DEADLINE, DEADLINE), None);
    }

    #[test]
    fn does_not_wait_for_a_skipped_turn() {
        let skipped = ActiveTurn { skipped: true, ..turn() };
        assert_eq!(wait_until([&skipped], DEADLINE, Millis(0)), None);
        assert_eq!(wait_until([&skipped, &turn()], DEADLINE, Millis(0)), Some(DEADLINE));
    }

    #[test]
    fn extends_the_wait_for_one_turn_up_to_a_limit() {
        let mut it = ActiveTurn { skipped: true, ..turn() };
        assert_eq!(it.extend(DEADLINE, Duration::from_secs(30)), Millis(90_000));
        assert_eq!(wait_until([&it, &turn()], DEADLINE, Millis(70_000)), Some(Millis(90_000)));
        assert_eq!(it.extend(DEADLINE, Duration::from_secs(5)), Millis(95_000));
        assert_eq!(it.extend(DEADLINE, Duration::MAX), DEADLINE.after(MAX_EXTENSION));
    }
}
