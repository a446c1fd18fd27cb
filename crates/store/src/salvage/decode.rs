//! Decode rules: whether a stored value parses as the type of its column.

use petasos_core::compaction::CompactionThrottle;
use petasos_core::cron::Job;
use petasos_core::journal::MessageOutcome;
use petasos_core::outbox::{Button, State};
use petasos_core::pairing::PairingState;
use petasos_core::session::Entry;
use petasos_core::transcript::{Picture, Role, ToolCall, Usage};
use petasos_core::turn::Turn;
use petasos_core::{Inbound, Route, Source};
use serde::de::{DeserializeOwned, IgnoredAny};

type Rule = (&'static str, &'static str, fn(&str) -> bool);

/// Table, column, and the rule for its text. No table name has two meanings in the two kinds of database.
pub(crate) const RULES: &[Rule] = &[
    ("inbox", "message", json::<Inbound>),
    ("inbox", "outcome", outcome),
    ("turns", "state", json::<Turn>),
    ("turns", "outcome", outcome),
    ("outbox", "route", json::<Route>),
    ("outbox", "buttons", json::<Vec<Button>>),
    ("outbox", "sent", json::<Vec<String>>),
    ("outbox", "state", |text| State::parse(text).is_some()),
    ("routing", "entry", json::<Entry>),
    ("sessions", "origin", json::<Source>),
    ("sessions", "pace", json::<CompactionThrottle>),
    ("messages", "role", |text| Role::parse(text).is_some()),
    ("messages", "tool_calls", json::<Vec<ToolCall>>),
    ("messages", "pictures", json::<Vec<Picture>>),
    ("pairing", "book", json::<PairingState>),
    ("completions", "origin", json::<Source>),
    ("processes", "origin", json::<Source>),
    ("delegations", "origin", json::<Source>),
    ("questions", "origin", json::<Source>),
    ("jobs", "job", json::<Job>),
    ("occurrences", "body", json::<Job>),
    ("runs", "outcome", outcome),
    ("runs", "usage", json::<Usage>),
    ("queue", "payload", json::<IgnoredAny>),
    ("requests", "answer", json::<IgnoredAny>),
    ("policies", "free_scopes", json::<Vec<String>>),
    ("media", "reference", json::<IgnoredAny>),
];

fn json<T: DeserializeOwned>(text: &str) -> bool {
    serde_json::from_str::<T>(text).is_ok()
}

fn outcome(text: &str) -> bool {
    MessageOutcome::parse(text).is_some()
}

/// First undecodable column of a row.
pub(crate) fn unreadable<'a>(table: &str, text_of: impl Fn(&str) -> Option<&'a str>) -> Option<&'static str> {
    let of_table = RULES.iter().filter(|(of, ..)| *of == table);
    of_table
        .into_iter()
        .find(|(_, column, makes_sense)| text_of(column).is_some_and(|text| !makes_sense(text)))
        .map(|(_, column, _)| *column)
}
