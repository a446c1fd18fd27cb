//! Runs one hook: its own process group, an environment without secrets, JSON on stdin and stdout, and a timeout.

use std::io;
use std::process::Stdio;

use petasos_agent::{GroupLeader, public_environment};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::manifest::{Hook, Program};

const MAX_RESPONSE_BYTES: u64 = 64 << 10;
/// Between SIGTERM and SIGKILL.
const GRACE: std::time::Duration = std::time::Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot run the program: {0}")]
    Spawn(#[from] io::Error),
    #[error("the program did not end within {0:?} and was terminated")]
    TimedOut(std::time::Duration),
    #[error("the program exited with code {0}")]
    Failed(i32),
    #[error("the response is longer than {} KB", MAX_RESPONSE_BYTES >> 10)]
    ResponseTooLong,
    #[error("invalid response: {0}")]
    InvalidResponse(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookDecision {
    Allow,
    /// Reject the command, with an optional message for its author.
    Deny(Option<String>),
    /// The hook carried out the command, with an optional message for its author.
    Handled(Option<String>),
    /// Continue with this text in place of the command.
    Rewrite(String),
}

impl HookDecision {
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
struct HookResponse {
    decision: Option<String>,
    #[serde(alias = "message")]
    text: Option<String>,
    command_name: Option<String>,
    raw_args: Option<String>,
}

pub(super) async fn notify(hook: &Hook, event: &str, context: &Value) -> Result<(), Error> {
    run(hook, event, context, Stdio::null()).await.map(drop)
}

pub(super) async fn request_decision(
    hook: &Hook,
    event: &str,
    context: &Value,
) -> Result<HookDecision, Error> {
    let output = run(hook, event, context, Stdio::piped()).await?;
    parse_response(&output)
}

/// Dropping the future kills the whole process group.
async fn run(hook: &Hook, event: &str, context: &Value, stdout: Stdio) -> Result<Vec<u8>, Error> {
    let mut command = match &hook.program {
        Program::File(path) => Command::new(path),
        Program::Shell(line) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", line]);
            shell
        }
    };
    command.current_dir(&hook.folder).env_clear().envs(public_environment(std::env::vars_os()));
    if let Some(home) = hook.folder.ancestors().nth(2) {
        command.env("PETASOS_HOME", home).env("HERMES_HOME", home);
    }
    command.env("PETASOS_EVENT", event).stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let mut leader = GroupLeader::new(child);
    let input = serde_json::json!({ "event": event, "context": context }).to_string();
    let exchange = async {
        let (_, output) = tokio::join!(write(stdin, input), read(stdout));
        let output = output?;
        Ok::<_, Error>((leader.wait().await, output))
    };
    let exchanged = tokio::time::timeout(hook.timeout, exchange).await;
    match exchanged {
        Ok(Ok((Some(0), output))) => Ok(output),
        Ok(Ok((code, _))) => Err(Error::Failed(code.unwrap_or(-1))),
        Ok(Err(error)) => {
            leader.terminate(GRACE).await;
            Err(error)
        }
        Err(_late) => {
            leader.terminate(GRACE).await;
            Err(Error::TimedOut(hook.timeout))
        }
    }
}

async fn write(stdin: Option<ChildStdin>, input: String) {
    let Some(mut stdin) = stdin else { return };
    // A program that ignores its input may close stdin early.
    let _ = stdin.write_all(input.as_bytes()).await;
}

async fn read(stdout: Option<ChildStdout>) -> Result<Vec<u8>, Error> {
    let Some(stdout) = stdout else { return Ok(vec![]) };
    let mut output = Vec::new();
    stdout.take(MAX_RESPONSE_BYTES + 1).read_to_end(&mut output).await?;
    if output.len() as u64 > MAX_RESPONSE_BYTES { Err(Error::ResponseTooLong) } else { Ok(output) }
}

/// An empty response allows the command.
fn parse_response(output: &[u8]) -> Result<HookDecision, Error> {
    if output.trim_ascii().is_empty() {
        return Ok(HookDecision::Allow);
    }
    let response: HookResponse =
        serde_json::from_slice(output).map_err(|_garbled| Error::InvalidResponse("no JSON object"))?;
    let text = response.text.filter(|text| !text.trim().is_empty());
    match response.decision.as_deref() {
        None | Some("allow") => Ok(HookDecision::Allow),
        Some("deny") => Ok(HookDecision::Deny(text)),
        Some("handled") => Ok(HookDecision::Handled(text)),
        Some("rewrite") => {
            let args = response.raw_args.unwrap_or_default();
            let command =
                response.command_name.map(|name| format!("/{} {args}", name.trim_start_matches('/')));
            let text = text.or(command).map(|text| text.trim().to_owned());
            text.map(HookDecision::Rewrite).ok_or(Error::InvalidResponse("a rewrite without a text"))
        }
        Some(_other) => Err(Error::InvalidResponse("the decision is none of allow, deny, handled, rewrite")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_responses() {
        let text = |text: &str| Some(text.to_owned());
        for (output, want) in [
            ("", Some(HookDecision::Allow)),
            (" \n", Some(HookDecision::Allow)),
            ("{}", Some(HookDecision::Allow)),
            (r#"{"decision":"allow"}"#, Some(HookDecision::Allow)),
            (r#"{"decision":"deny"}"#, Some(HookDecision::Deny(None))),
            (r#"{"decision":"deny","message":"not now"}"#, Some(HookDecision::Deny(text("not now")))),
            (r#"{"decision":"handled","text":"done"}"#, Some(HookDecision::Handled(text("done")))),
            (r#"{"decision":"rewrite","text":"/status"}"#, Some(HookDecision::Rewrite("/status".into()))),
            (
                r#"{"decision":"rewrite","command_name":"undo","raw_args":"2"}"#,
                Some(HookDecision::Rewrite("/undo 2".into())),
            ),
            (r#"{"decision":"rewrite"}"#, None),
            (r#"{"decision":"perhaps"}"#, None),
            ("hello", None),
        ] {
            assert_eq!(parse_response(output.as_bytes()).ok(), want, "{output}");
        }
    }
}
