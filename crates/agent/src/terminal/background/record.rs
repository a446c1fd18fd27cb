//! Records of background processes: request, identity, end and notifications.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use petasos_core::{Millis, SessionId, SessionKey, Source};
use serde::{Deserialize, Serialize};

/// The request; known before the process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundProcess {
    /// `proc_` and twelve hex digits; never reused.
    pub id: String,
    /// The owning session; no other session sees the process.
    pub key: SessionKey,
    pub session: SessionId,
    pub source: Source,
    pub command: String,
    pub cwd: String,
    pub notify: NotifyMode,
    pub started_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyMode {
    Nothing,
    Completion,
    /// Lines that contain a pattern, from this offset of the output on.
    Lines {
        patterns: Vec<String>,
        #[serde(rename = "told")]
        reported: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Boot id and start ticks, which tell it from a later process with the same pid. `None`: it ended before
    /// they were read.
    pub start_time: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExit {
    /// Negative for a signal; `None` if unknown.
    pub exit_code: Option<i32>,
    pub reason: ExitReason,
    pub at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    Exited,
    Killed,
    /// By a gateway that shut down.
    KilledWithAll,
    /// Gone when the gateway came back, without an exit code.
    Lost,
    FailedStart,
}

impl ExitReason {
    const ALL: [Self; 5] = [Self::Exited, Self::Killed, Self::KilledWithAll, Self::Lost, Self::FailedStart];

    /// The value of `completion_reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed | Self::KilledWithAll => "killed",
            Self::Lost => "lost",
            Self::FailedStart => "failed_start",
        }
    }

    /// The value of `termination_source`.
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

/// A process in the ledger of an earlier gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedProcess {
    pub record: BackgroundProcess,
    /// `None`: the gateway ended before it recorded the pid.
    pub identity: Option<ProcessIdentity>,
    pub end: Option<ProcessExit>,
}

/// A notification for a session; it starts a turn of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ProcessEvent {
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
        suppressed: u32,
        /// Offset in the output; tells one match from the next.
        at: u64,
    },
    /// It matched too often; from now on only its end is reported.
    WatchDisabled { session_id: String, command: String, suppressed: u32 },
    /// It exceeded the limit of all processes together; no match is reported for `rest` seconds.
    WatchOverflowTripped { session_id: String, command: String, rest: u64, at: u64 },
    /// Matches are reported again; `suppressed` ones of this process were not.
    WatchOverflowReleased { session_id: String, command: String, suppressed: u32, at: u64 },
}

impl ProcessEvent {
    /// Idempotency key of the notification.
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

    /// One line for people, without the command and its output.
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

/// A ledger write; resolves after the commit.
pub type LedgerWrite<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Durable record of processes. An event is committed together with the change that caused it, and delivered
/// once.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Called before the process starts.
    fn begin(&self, record: BackgroundProcess) -> LedgerWrite<'_>;
    fn started(&self, id: &str, identity: ProcessIdentity) -> LedgerWrite<'_>;
    fn ended(
        &self,
        record: &BackgroundProcess,
        end: ProcessExit,
        event: Option<ProcessEvent>,
    ) -> LedgerWrite<'_>;
    /// A notification from a running process. `record` contains the new notification state.
    fn happened(&self, record: &BackgroundProcess, event: ProcessEvent) -> LedgerWrite<'_>;
    /// The session has seen the end, so no notification follows.
    fn consumed(&self, id: &str) -> LedgerWrite<'_>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(exit_code: Option<i32>, reason: ExitReason) -> ProcessEvent {
        ProcessEvent::Completion {
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
    fn completion_text_describes_the_end() {
        for (code, reason, want) in [
            (Some(0), ExitReason::Exited, "completed normally (exit code 0)."),
            (Some(2), ExitReason::Exited, "exited (exit code 2)."),
            (Some(-15), ExitReason::KilledWithAll, "terminated by kill_all (exit code -15, SIGTERM)."),
            (
                None,
                ExitReason::Lost,
                "marked lost because it ended while the gateway was away (exit code unknown).",
            ),
        ] {
            let text = completion(code, reason).text();
            let first = format!("[IMPORTANT: Background process proc_1 {want}");
            assert_eq!(text, format!("{first}\nCommand: make\nOutput:\ndone]"));
        }
    }

    #[test]
    fn events_round_trip_through_json() {
        let seen = ProcessEvent::WatchMatch {
            session_id: "proc_1".into(),
            command: "make".into(),
            pattern: "ready".into(),
            output: "ready".into(),
            suppressed: 2,
            at: 77,
        };
        let session_id = String::from("proc_1");
        let command = String::from("make");
        let id = session_id.clone();
        let line = command.clone();
        let tripped = ProcessEvent::WatchOverflowTripped { session_id: id, command: line, rest: 30, at: 7 };
        let released = ProcessEvent::WatchOverflowReleased { session_id, command, suppressed: 3, at: 9 };
        assert!(released.text().contains("3 times") && tripped.text().contains("30 s"));
        for event in [completion(Some(1), ExitReason::Killed), seen, tripped, released] {
            let text = serde_json::to_string(&event).unwrap();
            assert!(text.contains(&format!("\"type\":\"{}\"", event.kind())), "{text}");
            assert_eq!(serde_json::from_str::<ProcessEvent>(&text).unwrap(), event);
        }
    }

    #[test]
    fn parses_reason_from_both_names() {
        for reason in ExitReason::ALL {
            assert_eq!(ExitReason::parse(reason.as_str(), reason.source()), Some(reason));
        }
        assert_eq!(ExitReason::parse("exited", "kill_all"), None);
    }
}
