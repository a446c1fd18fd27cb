//! Failure counts of sessions across restarts.
//!
//! A session interrupted by three stops or crashes in a row is suspended at the next start. A crash shared with other
//! sessions never raises a count to three. A successful turn, or a stop that does not interrupt the session, clears its
//! count.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::entry::Lenient;
use crate::ids::SessionKey;
use crate::lifecycle::suspects::raised_count;

const SUSPEND_AT: u32 = 3;

/// The file `.restart_failure_counts`. Unreadable entries count as zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct FailureCounts(BTreeMap<SessionKey, u32>);

impl FailureCounts {
    /// An orderly stop: increments the interrupted sessions, keeps those whose open turn was waiting, clears all others.
    pub fn record_stop<'a>(
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

    /// A crash counted against these sessions. A shared crash raises no count to [`SUSPEND_AT`].
    pub fn record_crash(&mut self, blamed: &[SessionKey]) {
        for key in blamed {
            let count = self.0.entry(key.clone()).or_default();
            *count = raised_count(*count, blamed.len(), SUSPEND_AT);
        }
    }

    /// At start: removes and returns the sessions to suspend.
    pub fn take_stuck(&mut self) -> Vec<SessionKey> {
        let stuck: Vec<SessionKey> =
            self.0.iter().filter(|(_, count)| **count >= SUSPEND_AT).map(|(key, _)| key.clone()).collect();
        self.0.retain(|_, count| *count < SUSPEND_AT);
        stuck
    }

    /// Clears the count after a successful turn. False: there was none.
    pub fn record_success(&mut self, key: &SessionKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// The file is not needed.
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
        let file: Lenient<BTreeMap<String, Count>> = Lenient::deserialize(deserializer)?;
        let counts = file.value().unwrap_or_default().into_iter().filter_map(|(key, count)| match count {
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
    fn suspends_after_three_interrupted_stops() {
        let mut counts = FailureCounts::default();
        for _ in 0..3 {
            assert_eq!(counts.take_stuck(), []);
            counts.record_stop([&key("a")], &[]);
        }
        counts.record_crash(&[key("b")]);
        assert_eq!(counts.take_stuck(), [key("a")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (0, 1));
    }

    #[test]
    fn clears_the_count_after_success_or_a_sparing_stop() {
        let mut counts = FailureCounts::default();
        counts.record_stop([&key("a"), &key("b")], &[]);
        counts.record_stop([&key("a"), &key("b")], &[]);
        assert!(counts.record_success(&key("a")) && !counts.record_success(&key("a")));
        counts.record_stop([&key("a")], &[]);
        assert_eq!(counts.take_stuck(), []);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 0));
        assert!(counts.record_success(&key("a")) && counts.is_empty());
    }

    #[test]
    fn keeps_the_count_of_a_waiting_turn() {
        let mut counts = FailureCounts::default();
        counts.record_crash(&[key("a"), key("b")]);
        counts.record_stop([], &[key("a")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 0));
    }

    #[test]
    fn does_not_change_the_counts_of_other_sessions() {
        let mut counts = FailureCounts::default();
        counts.record_stop([&key("a")], &[]);
        counts.record_crash(&[key("b")]);
        assert_eq!((counts.count(&key("a")), counts.count(&key("b"))), (1, 1));
    }

    #[test]
    fn shared_crashes_suspend_no_session() {
        let mut counts = FailureCounts::default();
        for _ in 0..5 {
            counts.record_crash(&[key("a"), key("b")]);
            assert_eq!(counts.take_stuck(), []);
        }
        counts.record_crash(&[key("b")]);
        assert_eq!(counts.take_stuck(), [key("b")]);
        counts.record_stop([&key("a")], &[]);
        assert_eq!(counts.take_stuck(), [key("a")]);
    }

    #[test]
    fn counts_invalid_entries_as_zero() {
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
