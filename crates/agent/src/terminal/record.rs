//! A background process as it is remembered: what was asked, who it is, how it ended, and what its session is told.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use petasos_core::{Millis, SessionId, SessionKey, Source};
use serde::{Deserialize, Serialize};

/// What was asked. Known before anything is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `proc_` and twelve hex digits; never used twice.
    pub id: String,
    /// Whose it is: nobody else sees it.
    pub key: SessionKey,
    pub session: SessionId,
    /// Where its session is told.
    pub source: Source,
    pub command: String,
    pub cwd: String,
    pub promise: Promise,
    pub started_at: Millis,
}

/// What the session was promised to hear of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    Nothing,
    /// Its end.
    Completion,
    /// Lines that contain one of these, behind what was told of already.
    Lines {
        patterns: Vec<String>,
        told: u64,
    },
}

/// Which process it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    /// Boot and ticks; tells it from others that get its number. `None`: it was gone before we could look.
    pub born: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// A signal's number is below zero. `None`: nobody knows.
    pub exit_code: Option<i32>,
    pub reason: Reason,
    pub at: Millis,
}

/// Why it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Exited,
    /// By its session.
    Killed,
    /// By a gateway that left.
    KilledWithAll,
    /// It was gone when we came back, and left no word.
    Lost,
    FailedStart,
}

impl Reason {
    const ALL: [Self; 5] = [Self::Exited, Self::Killed, Self::KilledWithAll, Self::Lost, Self::FailedStart];

    /// As `completion_reason` says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed | Self::KilledWithAll => "killed",
            Self::Lost => "lost",
            Self::FailedStart => "failed_start",
        }
    }

    /// As `termination_source` says it.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Exited => "",
            Self::Killed => "process.kill",
            Self::KilledWithAll => "kill_all",
            Self::Lost => "backend_lost",
            Self::FailedStart => "failed_start",
        }
    }

    pub fn parse(reason: &str, source: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == reason && it.source() == source)
    }
}

/// A process that an earlier gateway started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub record: Record,
    /// `None`: that gateway was gone before it could write it down.
    pub who: Option<Identity>,
    pub end: Option<End>,
}

/// Something a session is told: a turn of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Completion {
        session_id: String,
        command: String,
        exit_code: Option<i32>,
        completion_reason: String,
        termination_source: String,
        output: String,
        started_at: u64,
    },
    WatchMatch {
        session_id: String,
        command: String,
        pattern: String,
        output: String,
        /// Matches that were not told since the last one.
        suppressed: u32,
        /// Where in the output it was: tells one match from the next.
        at: u64,
    },
    /// It matched too often; from now on only its end is told.
    WatchDisabled { session_id: String, command: String, suppressed: u32 },
    /// Its match was one too many of all processes together: for so many seconds none is told.
    WatchOverflowTripped { session_id: String, command: String, rest: u64, at: u64 },
    /// They are told again; so many of this process were not.
    WatchOverflowReleased { session_id: String, command: String, suppressed: u32, at: u64 },
}

impl Event {
    /// What makes it one of its kind: it is told once.
    pub fn dispatch(&self) -> String {
        match self {
            Self::Completion { session_id, .. } => session_id.clone(),
            Self::WatchMatch { session_id, at, .. } => format!("{session_id}:watch:{at}"),
            Self::WatchDisabled { session_id, .. } => format!("{session_id}:watch_disabled"),
            Self::WatchOverflowTripped { session_id, at, .. } => format!("{session_id}:watch_tripped:{at}"),
            Self::WatchOverflowReleased { session_id, at, .. } => format!("{session_id}:watch_released:{at}"),
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Completion { .. } => "completion",
            Self::WatchMatch { .. } => "watch_match",
            Self::WatchDisabled { .. } => "watch_disabled",
            Self::WatchOverflowTripped { .. } => "watch_overflow_tripped",
            Self::WatchOverflowReleased { .. } => "watch_overflow_released",
        }
    }

    /// For people: what happened, in one line, without the command and what it printed.
    pub fn headline(&self) -> String {
        match self {
            Self::Completion { session_id, exit_code, .. } => {
                let code = exit_code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
                format!("background process {session_id} has ended (exit code {code})")
            }
            Self::WatchMatch { session_id, pattern, .. } => {
                format!("background process {session_id} printed {pattern:?}")
            }
            Self::WatchDisabled { session_id, .. } => {
                format!("background process {session_id} matches its watch patterns too often; they are off")
            }
            Self::WatchOverflowTripped { session_id, .. }
            | Self::WatchOverflowReleased { session_id, .. } => {
                format!("background process {session_id} printed watched lines that were not shown")
            }
        }
    }

    /// The words for the model.
    pub fn text(&self) -> String {
        match self {
            Self::Completion {
                session_id,
                command,
                exit_code,
                completion_reason,
                termination_source,
                output,
                ..
            } => {
                let status = match (completion_reason.as_str(), exit_code) {
                    ("exited", Some(0)) => "completed normally".to_owned(),
                    ("killed", _) => format!("terminated by {termination_source}"),
                    ("lost", _) => "marked lost because it ended while the gateway was away".to_owned(),
                    ("failed_start", _) => "failed to start".to_owned(),
                    _ => "exited".to_owned(),
                };
                let code = match exit_code {
                    Some(code) => format!("exit code {code}{}", signal_name(*code)),
                    None => "exit code unknown".to_owned(),
                };
                format!(
                    "[IMPORTANT: Background process {session_id} {status} ({code}).\nCommand: {command}\nOutput:\n{output}]"
                )
            }
            Self::WatchMatch { session_id, command, pattern, output, suppressed, .. } => {
                let more = match suppressed {
                    0 => String::new(),
                    count => format!("\n({count} earlier matches were not shown)"),
                };
                format!(
                    "[IMPORTANT: Background process {session_id} matched watch pattern \"{pattern}\".\n\
                     Command: {command}\nMatched output:\n{output}{more}]"
                )
            }
            Self::WatchDisabled { session_id, command, suppressed } => format!(
                "[IMPORTANT: Background process {session_id} matches its watch patterns too often ({suppressed} matches \
                 were not shown). They are off now; you will be told when it ends.\nCommand: {command}]"
            ),
            Self::WatchOverflowTripped { session_id, command, rest, .. } => format!(
                "[IMPORTANT: Background process {session_id} matched a watch pattern, but all background processes \
                 together match too often: no match is shown for {rest} s.\nCommand: {command}]"
            ),
            Self::WatchOverflowReleased { session_id, command, suppressed, .. } => format!(
                "[IMPORTANT: Background process {session_id} matched its watch patterns {suppressed} times that were \
                 not shown, because all background processes together matched too often. Matches are shown again; \
                 process(action='log') has what it printed.\nCommand: {command}]"
            ),
        }
    }
}

fn signal_name(code: i32) -> &'static str {
    match code {
        -1 => ", SIGHUP",
        -2 => ", SIGINT",
        -6 => ", SIGABRT",
        -9 => ", SIGKILL",
        -11 => ", SIGSEGV",
        -13 => ", SIGPIPE",
        -15 => ", SIGTERM",
        _ => "",
    }
}

/// An answer that comes after the commit.
pub type Kept<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Where processes are remembered. Every change is on disk before it counts; an event is committed together with the
/// change that caused it, and told once.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Before anything is started.
    fn begin(&self, record: Record) -> Kept<'_>;
    fn started(&self, id: &str, who: Identity) -> Kept<'_>;
    fn ended(&self, record: &Record, end: End, event: Option<Event>) -> Kept<'_>;
    /// Something to tell while it runs. `record` has what is promised from now on.
    fn happened(&self, record: &Record, event: Event) -> Kept<'_>;
    /// The session knows how it ended, so it is not told.
    fn consumed(&self, id: &str) -> Kept<'_>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(exit_code: Option<i32>, reason: Reason) -> Event {
        Event::Completion {
            session_id: "proc_1".into(),
            command: "make".into(),
            exit_code,
            completion_reason: reason.as_str().into(),
            termination_source: reason.source().into(),
            output: "done".into(),
            started_at: 0,
        }
    }

    #[test]
    fn the_model_is_told_how_it_ended() {
        for (code, reason, want) in [
            (Some(0), Reason::Exited, "completed normally (exit code 0)."),
            (Some(2), Reason::Exited, "exited (exit code 2)."),
            (Some(-15), Reason::KilledWithAll, "terminated by kill_all (exit code -15, SIGTERM)."),
            (
                None,
                Reason::Lost,
                "marked lost because it ended while the gateway was away (exit code unknown).",
            ),
        ] {
            let text = completion(code, reason).text();
            let first = format!("[IMPORTANT: Background process proc_1 {want}");
            assert_eq!(text, format!("{first}\nCommand: make\nOutput:\ndone]"));
        }
    }

    #[test]
    fn an_event_survives_being_written_down() {
        let seen = Event::WatchMatch {
            session_id: "proc_1".into(),
            command: "make".into(),
            pattern: "ready".into(),
            output: "ready".into(),
            suppressed: 2,
            at: 77,
        };
        let (session_id, command) = (String::from("proc_1"), String::from("make"));
        let (id, line) = (session_id.clone(), command.clone());
        let tripped = Event::WatchOverflowTripped { session_id: id, command: line, rest: 30, at: 7 };
        let released = Event::WatchOverflowReleased { session_id, command, suppressed: 3, at: 9 };
        assert!(released.text().contains("3 times") && tripped.text().contains("30 s"));
        for event in [completion(Some(1), Reason::Killed), seen, tripped, released] {
            let text = serde_json::to_string(&event).unwrap();
            assert!(text.contains(&format!("\"type\":\"{}\"", event.kind())), "{text}");
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        }
    }

    #[test]
    fn a_reason_is_known_by_its_two_words() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str(), reason.source()), Some(reason));
        }
        assert_eq!(Reason::parse("exited", "kill_all"), None);
    }
}
