//! Configuration problems: what is wrong, where, and what to do.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The program does not start.
    Error,
    /// An unknown key: an error in `config check`, but the gateway starts.
    #[serde(rename = "error")]
    Unknown,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// `config.yaml:12`, `.env:3`, `environment API_SERVER_PORT`.
    pub place: String,
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The line that cannot be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

impl Problem {
    pub fn error(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: place.into(), what: what.into(), next: None, shown: None }
    }

    pub fn warning(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, what) }
    }

    pub fn unknown(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { severity: Severity::Unknown, ..Self::error(place, what) }
    }

    #[must_use]
    pub fn next(mut self, advice: impl Into<String>) -> Self {
        self.next = Some(advice.into());
        self
    }

    /// Order: the file from top to bottom, then `.env`, then the rest.
    pub(crate) fn order(&self) -> (u8, u32) {
        let line = |rest: &str| rest.split(':').next().and_then(|line| line.parse().ok()).unwrap_or(0);
        if let Some(rest) = self.place.strip_prefix("config.yaml") {
            return (0, line(rest.trim_start_matches(':')));
        }
        match self.place.strip_prefix(".env") {
            Some(rest) => (1, line(rest.trim_start_matches(':'))),
            None => (2, 0),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        if let Some(next) = &self.next {
            write!(f, "; {next}")?;
        }
        if let Some(shown) = self.shown.as_ref().filter(|line| !line.trim().is_empty()) {
            write!(f, "\n    {}", shown.replace('\t', "→"))?;
        }
        Ok(())
    }
}
