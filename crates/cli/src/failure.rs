//! Why a command did not do what it was asked to: what happened, what to do next, and the exit code.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use petasos_config::Problem;
use petasos_store::OpenError;
use serde_json::json;

use crate::print::{self, BAD, styled, warn_of};

/// Other programs decide by these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Failed = 1,
    /// A supervisor must not start us again before a person has changed something.
    Configuration = 78,
}

/// For people, or for other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

#[derive(Debug)]
pub struct Failure {
    what: String,
    next: Option<String>,
    code: Code,
    /// Of the configuration; then `what` sums them up.
    problems: Vec<Problem>,
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), next: None, code: Code::Failed, problems: Vec::new() }
    }

    pub fn configuration(what: impl Into<String>) -> Self {
        Self { code: Code::Configuration, ..Self::new(what) }
    }

    /// All problems of a configuration at once.
    pub fn of_problems(problems: &[Problem]) -> Self {
        let mut failure = Self::configuration("the configuration cannot be used")
            .next("mend it; petasos config check looks again");
        failure.problems = problems.to_vec();
        failure
    }

    pub fn tell(&self, form: Form) {
        match form {
            Form::Json => warn_of!("{}", self.as_json()),
            Form::Text => {
                self.problems.iter().for_each(print::problem_err);
                warn_of!("{} {self}", styled(BAD, "error:"));
            }
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let mut error = json!({ "message": self.what, "next": self.next });
        if !self.problems.is_empty() {
            error["problems"] = json!(self.problems);
        }
        json!({ "error": error })
    }

    #[must_use]
    pub fn next(mut self, advice: impl Into<String>) -> Self {
        self.next = Some(advice.into());
        self
    }

    /// What happened, and what to do about it.
    pub fn parts(self) -> (String, String) {
        (self.what, self.next.unwrap_or_default())
    }

    pub fn exit_code(&self) -> ExitCode {
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

impl From<petasos_config::Nowhere> for Failure {
    fn from(nowhere: petasos_config::Nowhere) -> Self {
        Self::configuration(nowhere.to_string()).next("pass --home DIR")
    }
}

impl From<petasos_store::Error> for Failure {
    fn from(error: petasos_store::Error) -> Self {
        Self::new(format!("the database could not be used: {error}"))
            .next("petasos doctor looks for the reason")
    }
}

/// What to do about a database that was not opened. Its own words are kept; this names the files.
impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let next: String = match &error {
            OpenError::Corrupt { path, .. } => restore(path),
            OpenError::Vanished { path, sign } => {
                let marker = beside(path);
                let both = if *sign == marker { String::new() } else { format!(" and {}", sign.display()) };
                format!(
                    "restore {} from a backup; or remove {}{both} to start with nothing",
                    path.display(),
                    marker.display()
                )
            }
            OpenError::Foreign { .. } | OpenError::NoDirectory { .. } => {
                "petasos config path shows which home is used; --home chooses another".into()
            }
            OpenError::Newer { .. } => "install the newer version of petasos again".into(),
            OpenError::Older { .. } => "petasos run upgrades it".into(),
            OpenError::Absent { .. } => "petasos run creates it".into(),
            OpenError::Failed { error: petasos_store::Error::ReadOnly, .. } => WRITABLE.into(),
            OpenError::Failed { .. } => "petasos doctor looks for the reason".into(),
        };
        Self::new(error.to_string()).next(next)
    }
}

/// For a home that cannot be written.
pub const WRITABLE: &str =
    "make the home writable for this user (chown, chmod, remount), or choose another one with --home DIR";

fn restore(path: &Path) -> String {
    if path.file_name().is_some_and(|name| name == petasos_store::connector::DATABASE) {
        return format!("check the disk, stop the connector and restore {} from a backup", path.display());
    }
    format!(
        "petasos doctor --repair salvages what can be read of {}; petasos restore puts a backup in its place",
        path.display()
    )
}

/// The file that remembers that there was a database.
fn beside(database: &Path) -> std::path::PathBuf {
    database.with_file_name(".petasos-db")
}
