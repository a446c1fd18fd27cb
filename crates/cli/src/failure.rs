//! The error type of commands: what happened, what to do next, and the exit code.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use petasos_config::{Problem, SecretError};
use petasos_store::OpenError;
use serde_json::json;

use crate::print::{self, ERROR, errln, styled};

/// Exit codes; scripts and supervisors depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCode {
    Failed = 1,
    /// `EX_CONFIG`: a supervisor must not restart the process until the configuration has changed.
    Configuration = 78,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    Text,
    Json,
}

#[derive(Debug)]
pub struct Failure {
    message: String,
    next: Option<String>,
    code: FailureCode,
    /// Problems of the configuration; `message` summarises them.
    problems: Vec<Problem>,
}

/// Not a mistake in the configuration: a supervisor may try again.
impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        let advice =
            "run the command by hand as this user; secrets.command_timeout_seconds gives it more time";
        Self::new(error.to_string()).next(advice)
    }
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), next: None, code: FailureCode::Failed, problems: Vec::new() }
    }

    pub fn configuration(message: impl Into<String>) -> Self {
        Self { code: FailureCode::Configuration, ..Self::new(message) }
    }

    pub fn from_problems(problems: &[Problem]) -> Self {
        let mut failure = Self::configuration("the configuration cannot be used")
            .next("petasos config check lists the errors; correct them");
        failure.problems = problems.to_vec();
        failure
    }

    pub fn report(&self, form: OutputFormat) {
        match form {
            OutputFormat::Json => errln!("{}", self.as_json()),
            OutputFormat::Text => {
                self.problems.iter().for_each(print::problem_err);
                errln!("{} {self}", styled(ERROR, "error:"));
            }
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let mut error = json!({ "message": self.message, "next": self.next });
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

    pub fn parts(self) -> (String, String) {
        (self.message, self.next.unwrap_or_default())
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.next {
            Some(next) => write!(f, "\n  next: {next}"),
            None => Ok(()),
        }
    }
}

impl From<petasos_config::NoHomeError> for Failure {
    fn from(error: petasos_config::NoHomeError) -> Self {
        Self::configuration(error.to_string()).next("pass --home DIR")
    }
}

impl From<petasos_store::Error> for Failure {
    fn from(error: petasos_store::Error) -> Self {
        Self::new(format!("the database could not be used: {error}"))
            .next("petasos doctor checks for the cause")
    }
}

/// Keeps the message of the error and adds what to do with the files.
impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let next: String = match &error {
            OpenError::Corrupt { path, .. } => recovery_advice(path),
            OpenError::Vanished { path, sign } => {
                let marker = marker_beside(path);
                let also = if *sign == marker { String::new() } else { format!(" and {}", sign.display()) };
                format!(
                    "put the file back, or restore {} from a backup; or remove {}{also} to start with an empty database",
                    path.display(),
                    marker.display()
                )
            }
            OpenError::Foreign { .. } | OpenError::NoDirectory { .. } => {
                "petasos config path shows the home in use; --home DIR selects another one".into()
            }
            OpenError::Newer { .. } => "install the newer version of petasos again".into(),
            OpenError::Older { .. } => "petasos run upgrades it".into(),
            OpenError::Absent { .. } => "petasos run creates it".into(),
            OpenError::Failed { error: petasos_store::Error::ReadOnly, .. } => WRITABLE_ADVICE.into(),
            OpenError::Failed { .. } => "petasos doctor checks for the cause".into(),
        };
        Self::new(error.to_string()).next(next)
    }
}

pub const WRITABLE_ADVICE: &str =
    "make the home writable for this user (chown, chmod, remount), or select another one with --home DIR";

fn recovery_advice(path: &Path) -> String {
    if path.file_name().is_some_and(|name| name == petasos_store::connector::DATABASE) {
        return format!(
            "petasos connector run salvages the readable rows of {} at its start; petasos connector repair does so by hand",
            path.display()
        );
    }
    format!(
        "petasos doctor --repair salvages the readable rows of {}; petasos restore replaces it with a backup",
        path.display()
    )
}

/// The marker file that records that a database existed.
fn marker_beside(database: &Path) -> std::path::PathBuf {
    let connector = database.file_name().is_some_and(|name| name == petasos_store::connector::DATABASE);
    database.with_file_name(if connector { ".connector-db" } else { ".petasos-db" })
}
