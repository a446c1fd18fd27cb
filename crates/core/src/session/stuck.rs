//! Sessions that take the gateway's stops down with them, counted across restarts.
//!
//! A session interrupted by three stops (or crashes) in a row is suspended at the next start: whatever it
//! does, resuming it once more would not help. The last of them is not a crash that it shares with other sessions. One successful turn, or one stop that did not interrupt it, clears
//! its count.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::entry::Loose;
use crate::ids::SessionKey;
use crate::lifecycle::suspects::raised;

const STUCK: u32 = 3;

/// The file `.restart_failure_counts`. Anything unreadable in it counts as zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct FailureCounts(BTreeMap<SessionKey, u32>);

impl FailureCounts {
    /// An orderly stop: those it interrupted count one more, those whose open turn only waited stay as they are,
    /// everyone else starts again at zero.
    pub fn stopped<'a>(
        &mut self,
        interrupted: impl IntoIterator<Item = &'a SessionKey>,
        waiting: &[SessionKey],
    ) {
        let interrupted: BTreeSet<&SessionKey> = interrupted.into_iter().collect();
        self.0.retain(|key, _| interrupted.contains(key) || waiting.contains(key));
        for key in interrupted {
            let count = self.0.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// A crash that is counted against these. One that several share raises no count to [`STUCK`].
    pub fn crashed(&mut self, blamed: &[SessionKey]) {
        for key in blamed {
            let count = self.0.entry(key.clone()).or_default();
            *count = raised(*count, blamed.len(), STUCK);
        }
    }

    /// At start: takes out those to be suspended. The others keep their counts.
    pub fn take_stuck(&mut self) -> Vec<SessionKey> {
        let stuck: Vec<SessionKey> =
            self.0.iter().filter(|(_, count)| **count >= STUCK).map(|(key, _)| key.clone()).collect();
        self.0.retain(|_, count| *count < STUCK);
        stuck
    }

    /// A turn succeeded. False: there was nothing to forget.
    pub fn succeeded(&mut self, key: &SessionKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// Nothing is counted: the file is not needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self, key: &SessionKey) -> u32 {
        self.0.get(key).copied().unwrap_or_default()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Plain(u32),
    Object { count: u32 },
    Other(IgnoredAny),
}

impl<'de> Deserialize<'de> for FailureCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let file: Loose<BTreeMap<String, Count>> = Loose::deserialize(deserializer)?;
        let counts = file.good().unwrap_or_default().into_iter().filter_map(|(key, count)| match count {
            Count::Plain(count) | Count::Object { count } => (count > 0).then_some((SessionKey(key), count)),
            Count::Other(IgnoredAny) => None,
        });
        Ok(Self(counts.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey(name.into())
    }

    #[test]
    fn three_interrupted_stops_in_a_row_suspend_at_the_next_start() {
        let mut counts = FailureCounts::default();
        for _ in 0..3 {
            assert_eq!(counts.take_stuck(), []);
            counts.stopped([&key("a")], &[]);
        }
        counts.crashed(&[key("b")]);
        assert_eq!(counts.take_stuck(), [key("a")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (0, 1));
    }

    #[test]
    fn a_success_or_a_stop_that_spares_it_clears_the_count() {
        let mut counts = FailureCounts::default();
        counts.stopped([&key("a"), &key("b")], &[]);
        counts.stopped([&key("a"), &key("b")], &[]);
        assert!(counts.succeeded(&key("a")) && !counts.succeeded(&key("a")));
        counts.stopped([&key("a")], &[]);
        assert_eq!(counts.take_stuck(), []);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 0));
        assert!(counts.succeeded(&key("a")) && counts.is_empty());
    }

    #[test]
    fn a_turn_that_only_waited_learns_nothing_from_a_stop() {
        let mut counts = FailureCounts::default();
        counts.crashed(&[key("a"), key("b")]);
        counts.stopped([], &[key("a")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 0));
    }

    #[test]
    fn a_crash_leaves_the_counts_of_others_alone() {
        let mut counts = FailureCounts::default();
        counts.stopped([&key("a")], &[]);
        counts.crashed(&[key("b")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 1));
    }

    #[test]
    fn shared_crashes_suspend_no_session() {
        let mut counts = FailureCounts::default();
        for _ in 0..5 {
            counts.crashed(&[key("a"), key("b")]);
            assert_eq!(counts.take_stuck(), []);
        }
        counts.crashed(&[key("b")]);
        assert_eq!(counts.take_stuck(), [key("b")]);
        counts.stopped([&key("a")], &[]);
        assert_eq!(counts.take_stuck(), [key("a")]);
    }

    #[test]
    fn junk_in_the_file_counts_as_zero() {
        for (text, a) in [
            (r#"{"a": 2}"#, 2),
            (r#"{"a": {"count": 3, "at": 7}}"#, 3),
            (r#"{"a": "2", "b": null, "c": [], "d": -1, "e": true}"#, 0),
            (r#"{"a": {"n": 3}}"#, 0),
            (r#"{"a": 0}"#, 0),
            (r#"[1]"#, 0),
            (r#""x""#, 0),
        ] {
            let counts: FailureCounts = serde_json::from_str(text).unwrap();
            assert_eq!(counts.count(&key("a")), a, "{text}");
            assert_eq!(counts.is_empty(), a == 0, "{text}");
        }
    }
}
