//! Why a command did not do what it was asked to: what happened, what to do next, and the exit code.

use std::fmt;
use std::process::ExitCode;

use crate::config::{Problem, Severity};

/// Other programs decide by these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    /// A supervisor must not start us again before a person has changed something.
    Configuration = 78,
}

#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    next: Option<String>,
    code: Code,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), next: None, code: Code::Failed }
    }

    pub(crate) fn configuration(what: impl Into<String>) -> Self {
        Self { code: Code::Configuration, ..Self::new(what) }
    }

    /// All problems of a configuration at once.
    pub(crate) fn of_problems(problems: &[Problem]) -> Self {
        let fatal = problems.iter().filter(|problem| problem.severity == Severity::Error);
        let lines: Vec<String> = fatal.map(ToString::to_string).collect();
        Self::configuration(lines.join("\n")).next("petasos config check shows everything that is wrong")
    }

    #[must_use]
    pub(crate) fn next(mut self, advice: impl Into<String>) -> Self {
        self.next = Some(advice.into());
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.next {
            Some(next) => write!(f, "\n  next: {next}"),
            None => Ok(()),
        }
    }
}

impl From<crate::config::Nowhere> for Failure {
    fn from(nowhere: crate::config::Nowhere) -> Self {
        Self::configuration(nowhere.to_string()).next("pass --home DIR")
    }
}

impl From<petasos_store::Error> for Failure {
    fn from(error: petasos_store::Error) -> Self {
        Self::new(format!("the database could not be used: {error}"))
            .next("petasos doctor looks for the reason")
    }
}

impl From<petasos_store::OpenError> for Failure {
    fn from(error: petasos_store::OpenError) -> Self {
        Self::new(error.to_string())
    }
}
