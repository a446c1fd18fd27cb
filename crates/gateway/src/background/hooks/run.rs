//! One run of a hook: a program in its own process group, without our secrets, JSON in and JSON out, within its time.

use std::io;
use std::process::Stdio;

use petasos_agent::{Leader, handed_on};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::read::{Hook, Program};

/// Bytes that an answer may have.
const LONGEST: u64 = 64 << 10;
/// What it gets between the request to end and the end.
const GRACE: std::time::Duration = std::time::Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("it cannot be run: {0}")]
    NotRun(#[from] io::Error),
    #[error("it did not end within {0:?} and was ended")]
    Late(std::time::Duration),
    #[error("it ended with {0}")]
    Failed(i32),
    #[error("its answer is longer than {} KB", LONGEST >> 10)]
    TooLong,
    #[error("its answer is not understood: {0}")]
    Unclear(&'static str),
}

/// What a hook says to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Allow,
    /// The command is not obeyed; the author is told so.
    Deny(Option<String>),
    /// The hook has done it; the author is told this, if anything.
    Handled(Option<String>),
    /// Go on as if this had been written.
    Rewrite(String),
}

impl Said {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny(_) => "deny",
            Self::Handled(_) => "handled",
            Self::Rewrite(_) => "rewrite",
        }
    }
}

#[derive(Deserialize, Default)]
struct Answer {
    decision: Option<String>,
    #[serde(alias = "message")]
    text: Option<String>,
    command_name: Option<String>,
    raw_args: Option<String>,
}

/// Nobody reads what it says.
pub(super) async fn tell(hook: &Hook, event: &str, context: &Value) -> Result<(), Error> {
    run(hook, event, context, Stdio::null()).await.map(drop)
}

pub(super) async fn ask(hook: &Hook, event: &str, context: &Value) -> Result<Said, Error> {
    let output = run(hook, event, context, Stdio::piped()).await?;
    understood(&output)
}

/// Dropping the future ends the program and everything it started in its group.
async fn run(hook: &Hook, event: &str, context: &Value, stdout: Stdio) -> Result<Vec<u8>, Error> {
    let mut command = match &hook.program {
        Program::File(path) => Command::new(path),
        Program::Line(line) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", line]);
            shell
        }
    };
    command.current_dir(&hook.folder).env_clear().envs(handed_on(std::env::vars_os()));
    // Its folder is `<home>/hooks/<folder>`.
    if let Some(home) = hook.folder.ancestors().nth(2) {
        command.env("PETASOS_HOME", home).env("HERMES_HOME", home);
    }
    command.env("PETASOS_EVENT", event).stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut leader = Leader::new(child);
    let input = serde_json::json!({ "event": event, "context": context }).to_string();
    let talk = async {
        let (_, output) = tokio::join!(write(stdin, input), read(stdout));
        let output = output?;
        Ok::<_, Error>((leader.wait().await, output))
    };
    let talked = tokio::time::timeout(hook.limit, talk).await;
    match talked {
        Ok(Ok((Some(0), output))) => Ok(output),
        Ok(Ok((code, _))) => Err(Error::Failed(code.unwrap_or(-1))),
        Ok(Err(error)) => {
            leader.end(GRACE).await;
            Err(error)
        }
        Err(_late) => {
            leader.end(GRACE).await;
            Err(Error::Late(hook.limit))
        }
    }
}

async fn write(stdin: Option<ChildStdin>, input: String) {
    let Some(mut stdin) = stdin else { return };
    // A program that does not care what happened closes its end; that is no failure.
    let _ = stdin.write_all(input.as_bytes()).await;
}

async fn read(stdout: Option<ChildStdout>) -> Result<Vec<u8>, Error> {
    let Some(stdout) = stdout else { return Ok(vec![]) };
    let mut output = Vec::new();
    stdout.take(LONGEST + 1).read_to_end(&mut output).await?;
    if output.len() as u64 > LONGEST { Err(Error::TooLong) } else { Ok(output) }
}

/// Silence allows.
fn understood(output: &[u8]) -> Result<Said, Error> {
    if output.trim_ascii().is_empty() {
        return Ok(Said::Allow);
    }
    let answer: Answer =
        serde_json::from_slice(output).map_err(|_garbled| Error::Unclear("no JSON object"))?;
    let text = answer.text.filter(|text| !text.trim().is_empty());
    match answer.decision.as_deref() {
        None | Some("allow") => Ok(Said::Allow),
        Some("deny") => Ok(Said::Deny(text)),
        Some("handled") => Ok(Said::Handled(text)),
        Some("rewrite") => {
            let args = answer.raw_args.unwrap_or_default();
            let command = answer.command_name.map(|name| format!("/{} {args}", name.trim_start_matches('/')));
            let text = text.or(command).map(|text| text.trim().to_owned());
            text.map(Said::Rewrite).ok_or(Error::Unclear("a rewrite without a text"))
        }
        Some(_other) => Err(Error::Unclear("the decision is none of allow, deny, handled, rewrite")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let text = |text: &str| Some(text.to_owned());
        for (output, want) in [
            ("", Some(Said::Allow)),
            (" \n", Some(Said::Allow)),
            ("{}", Some(Said::Allow)),
            (r#"{"decision":"allow"}"#, Some(Said::Allow)),
            (r#"{"decision":"deny"}"#, Some(Said::Deny(None))),
            (r#"{"decision":"deny","message":"not now"}"#, Some(Said::Deny(text("not now")))),
            (r#"{"decision":"handled","text":"done"}"#, Some(Said::Handled(text("done")))),
            (r#"{"decision":"rewrite","text":"/status"}"#, Some(Said::Rewrite("/status".into()))),
            (
                r#"{"decision":"rewrite","command_name":"undo","raw_args":"2"}"#,
                Some(Said::Rewrite("/undo 2".into())),
            ),
            (r#"{"decision":"rewrite"}"#, None),
            (r#"{"decision":"perhaps"}"#, None),
            ("hello", None),
        ] {
            assert_eq!(understood(output.as_bytes()).ok(), want, "{output}");
        }
    }
}
