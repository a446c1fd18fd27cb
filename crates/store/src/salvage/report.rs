//! Report of a salvage: the damage found and the rows lost.

use std::fmt::Write;

use petasos_core::Millis;
use serde::{Deserialize, Serialize};

/// Ranges per table stored in the database; the report file lists all of them.
const MAX_RANGES: usize = 20;

/// Tables of a gateway that record which messages were accepted and answered.
const DEDUPE_TABLES: [&str; 5] = ["inbox", "seen", "signatures", "cursors", "turns"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvage {
    pub at: Millis,
    pub why: String,
    /// Path of the damaged database; its log is beside it.
    pub moved_to: String,
    pub report: String,
    pub rows: u64,
    pub losses: Vec<TableLoss>,
    /// Commits in the damaged log that may be incomplete.
    pub log_commits: usize,
    /// Time before which the record of accepted and answered messages is incomplete.
    pub unknown_before: Option<Millis>,
    /// Of a connector: what the loss means for messages and access, and how to correct it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<String>,
}

/// Unreadable ranges of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLoss {
    pub table: String,
    pub ranges: Vec<LostRange>,
    #[serde(default)]
    pub more: usize,
}

/// Inclusive row ids. `None`: unbounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    pub from: Option<i64>,
    pub to: Option<i64>,
    /// Key in a table without row ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub why: String,
}

impl LostRange {
    fn description(&self) -> String {
        let ends = match (&self.key, self.from, self.to) {
            (Some(key), ..) => format!("row {key}"),
            (None, None, None) => "any number of rows".into(),
            (None, Some(from), Some(to)) if from == to => format!("row {from}"),
            (None, Some(from), Some(to)) => format!("rows {from} to {to}"),
            (None, Some(from), None) => format!("rows from {from}"),
            (None, None, Some(to)) => format!("rows up to {to}"),
        };
        format!("{ends}: {}", self.why)
    }
}

impl TableLoss {
    /// `inbox: row 3; rows 7 to 9`.
    pub fn description(&self) -> String {
        let ranges: Vec<_> = self.ranges.iter().map(LostRange::description).collect();
        let more = if self.more > 0 { format!("; and {} more", self.more) } else { String::new() };
        format!("{}: {}{more}", self.table, ranges.join("; "))
    }
}

impl Salvage {
    /// Whether rows are lost that prevent a message from running twice.
    pub(super) fn lost_dedupe_state(&self) -> bool {
        self.may_lack(&DEDUPE_TABLES)
    }

    pub fn lost_cursors(&self) -> bool {
        self.may_lack(&["cursors"])
    }

    /// Whether rows of these tables are lost, or commits that may have changed them.
    pub(super) fn may_lack(&self, tables: &[&str]) -> bool {
        self.log_commits > 0 || self.lists(tables)
    }

    /// Whether rows of these tables are lost.
    pub(super) fn lists(&self, tables: &[&str]) -> bool {
        self.losses.iter().any(|loss| tables.contains(&loss.table.as_str()))
    }

    /// With a bounded number of ranges, for the database and the log.
    pub fn shortened(&self) -> Self {
        let mut short = self.clone();
        for loss in &mut short.losses {
            loss.more += loss.ranges.len().saturating_sub(MAX_RANGES);
            loss.ranges.truncate(MAX_RANGES);
        }
        short
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |description: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{description}");
        };
        line("Petasos found its database damaged and moved what could be read into a new one.".into());
        line(format!("found:    {}", self.why));
        line(format!("damaged:  {} (kept; delete it when you no longer need it)", self.moved_to));
        line(format!("kept:     {} rows", self.rows));
        if self.log_commits > 0 {
            line(format!("log:      {} commits may be incomplete", self.log_commits));
        }
        if self.losses.is_empty() {
            line("lost:     no rows; indexes and the search index were rebuilt".into());
        }
        for loss in &self.losses {
            for range in &loss.ranges {
                line(format!("lost:     {}: {}", loss.table, range.description()));
            }
        }
        if self.unknown_before.is_some() {
            line(
                "Messages from before the damage that are no longer known are reported and not answered."
                    .into(),
            );
        }
        self.consequences.iter().for_each(|consequence| line(format!("means:    {consequence}")));
        text
    }

    /// One line for status and log.
    pub fn summary(&self) -> String {
        let tables: Vec<_> = self.losses.iter().map(|loss| loss.table.as_str()).collect();
        let lost = match tables.as_slice() {
            [] => "no rows were lost".to_owned(),
            tables => format!("rows were lost in {}", tables.join(", ")),
        };
        format!("the database was damaged ({}); {lost}; details: {}", self.why, self.report)
    }
}
