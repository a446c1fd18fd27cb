//! Report of a salvage: damage found and rows lost.

use std::fmt::Write;

use petasos_core::Millis;
use serde::{Deserialize, Serialize};

/// Ranges of one table that are kept in the database; the report file has all of them.
const KEPT: usize = 20;

/// Tables whose rows say which messages were taken and answered.
const KNOWLEDGE: [&str; 5] = ["inbox", "seen", "signatures", "cursors", "turns"];

/// A salvaged database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvage {
    pub at: Millis,
    /// Damage that was found.
    pub why: String,
    /// The damaged database, with its log beside it.
    pub moved_to: String,
    /// The report file.
    pub report: String,
    /// Rows in the new database.
    pub rows: u64,
    pub losses: Vec<Loss>,
    /// Commits that the damaged write-ahead log did not give back completely.
    pub log_commits: usize,
    /// Which messages were accepted and answered before this moment is not known completely.
    pub unknown_before: Option<Millis>,
}

/// Ranges of one table that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub table: String,
    pub ranges: Vec<Range>,
    /// Ranges beyond those listed here.
    #[serde(default)]
    pub more: usize,
}

/// Row ids, both ends included. `None`: from the first, to the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub from: Option<i64>,
    pub to: Option<i64>,
    /// In a table without row ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub why: String,
}

impl Range {
    fn words(&self) -> String {
        let ends = match (&self.key, self.from, self.to) {
            (Some(key), ..) => format!("row {key}"),
            (None, None, None) => "rows in any place".into(),
            (None, Some(from), Some(to)) if from == to => format!("row {from}"),
            (None, Some(from), Some(to)) => format!("rows {from} to {to}"),
            (None, Some(from), None) => format!("rows from {from}"),
            (None, None, Some(to)) => format!("rows up to {to}"),
        };
        format!("{ends}: {}", self.why)
    }
}

impl Loss {
    /// `inbox: row 3; rows 7 to 9`.
    pub fn words(&self) -> String {
        let ranges: Vec<_> = self.ranges.iter().map(Range::words).collect();
        let more = if self.more > 0 { format!("; and {} more", self.more) } else { String::new() };
        format!("{}: {}{more}", self.table, ranges.join("; "))
    }
}

impl Salvage {
    /// Whether something is lost that decides if a message runs again.
    pub(super) fn lost_knowledge(&self) -> bool {
        self.log_commits > 0 || self.losses.iter().any(|loss| KNOWLEDGE.contains(&loss.table.as_str()))
    }

    pub fn lost_cursors(&self) -> bool {
        self.log_commits > 0 || self.losses.iter().any(|loss| loss.table == "cursors")
    }

    /// Small enough for a row of the new database.
    pub(super) fn shortened(&self) -> Self {
        let mut short = self.clone();
        for loss in &mut short.losses {
            loss.more += loss.ranges.len().saturating_sub(KEPT);
            loss.ranges.truncate(KEPT);
        }
        short
    }

    /// The report file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{words}");
        };
        line("Petasos found its database damaged and moved what could be read into a new one.".into());
        line(format!("found:    {}", self.why));
        line(format!("damaged:  {} (kept; delete it when you do not need it any more)", self.moved_to));
        line(format!("kept:     {} rows", self.rows));
        if self.log_commits > 0 {
            line(format!("log:      {} commits may be incomplete", self.log_commits));
        }
        if self.losses.is_empty() {
            line("lost:     no rows; indexes and the search index were rebuilt".into());
        }
        for loss in &self.losses {
            for range in &loss.ranges {
                line(format!("lost:     {}: {}", loss.table, range.words()));
            }
        }
        if self.unknown_before.is_some() {
            line(
                "Messages from before the damage that are not known any more are reported, not answered."
                    .into(),
            );
        }
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
