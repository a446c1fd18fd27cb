//! Variables from secret stores: systemd credentials, and commands of password managers.
//!
//! They are read once, at the start of a process, and never enter its environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::catalogue::secrets;
use crate::environment::VariableSource;
use crate::settings::Settings;

/// Maximum size of a secret.
const MAX_BYTES: u64 = 64 << 10;
/// Value of a variable whose command was not run.
const NOT_RUN: &str = "(a command prints it at start)";

pub(crate) type Variables = BTreeMap<String, (String, VariableSource)>;

/// A secret cannot be read. The reason contains no output of a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SecretError {
    pub place: String,
    pub reason: String,
}

/// A command that prints the value of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecretCommand {
    pub(crate) variable: String,
    program: String,
    arguments: Vec<String>,
}

/// The files in the directory of systemd credentials that are named like variables (`LoadCredential=NAME:PATH`).
pub(crate) fn credentials(directory: Option<&Path>) -> Result<Variables, SecretError> {
    let mut found = Variables::new();
    let Some(directory) = directory else { return Ok(found) };
    let failed = |path: &Path, error: io::Error| SecretError {
        place: path.display().to_string(),
        reason: format!("the credential cannot be read: {error}"),
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // The variable may be inherited from a service that has ended.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(failed(directory, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(directory, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_variable(name));
        if let Some(name) = name {
            let value = File::open(&path).and_then(secret_text).map_err(|error| failed(&path, error))?;
            found.insert(name.to_owned(), (value, VariableSource::Credential));
        }
    }
    Ok(found)
}

/// The configured commands, in the order of their variables.
pub(crate) fn commands(settings: &Settings) -> Result<Vec<SecretCommand>, SecretError> {
    let Some(configured) = settings.get(&secrets::COMMANDS) else { return Ok(vec![]) };
    let invalid = |place: String, reason: &str| SecretError { place, reason: reason.to_owned() };
    let Value::Object(entries) = configured else {
        return Err(invalid(secrets::COMMANDS.to_string(), "expected a map of variable name to command"));
    };
    let parse = |(variable, command): (String, Value)| {
        let place = format!("{}.{variable}", secrets::COMMANDS);
        if !is_variable(&variable) {
            return Err(invalid(place, "the name is no variable: use letters, digits and _"));
        }
        let words = match command {
            Value::String(text) => Some(vec!["/bin/sh".into(), "-c".into(), text]),
            Value::Array(words) => words.into_iter().map(|word| word.as_str().map(str::to_owned)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        let mut words = words.into_iter().flatten();
        let program = words.next().filter(|program| !program.is_empty());
        let program =
            program.ok_or_else(|| invalid(place, "expected a command: a text or a list of texts"))?;
        Ok(SecretCommand { variable, program, arguments: words.collect() })
    };
    entries.into_iter().map(parse).collect()
}

/// Runs the commands, one after the other: a password manager may have to be unlocked by the first.
pub(crate) fn run(commands: &[SecretCommand], timeout: Duration) -> Result<Variables, SecretError> {
    let run = |command: &SecretCommand| {
        let value = command.run(timeout).map_err(|reason| SecretError {
            place: format!("{}.{}", secrets::COMMANDS, command.variable),
            reason,
        })?;
        Ok((command.variable.clone(), (value, VariableSource::Command)))
    };
    commands.iter().map(run).collect()
}

/// For commands of the program that need no secret.
pub(crate) fn placeholders(commands: &[SecretCommand]) -> Variables {
    let placeholder =
        |command: &SecretCommand| (command.variable.clone(), (NOT_RUN.to_owned(), VariableSource::Command));
    commands.iter().map(placeholder).collect()
}

impl SecretCommand {
    fn run(&self, timeout: Duration) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        // Error output may contain secrets.
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| format!("{} cannot be started: {error}", self.program))?;
        let group = Pid::from_child(&child);
        let (report, result) = sync_channel(1);
        #[expect(clippy::disallowed_methods, reason = "runs before there are tasks; the wait has a timeout")]
        thread::spawn(move || {
            // The receiver is gone after the timeout.
            let _ = report.send(output(child));
        });
        let Ok(ended) = result.recv_timeout(timeout) else {
            // It may end at this moment.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            return Err(format!("the command did not end within {} s", timeout.as_secs_f64()));
        };
        match ended.map_err(|error| format!("its output cannot be used: {error}"))? {
            (status, _) if !status.success() => Err(format!("the command failed with {status}")),
            (_, value) if value.is_empty() => Err("the command printed nothing".into()),
            (_, value) => Ok(value),
        }
    }
}

fn output(mut child: Child) -> io::Result<(ExitStatus, String)> {
    let text = child.stdout.take().map(secret_text).transpose();
    let status = child.wait()?;
    Ok((status, text?.unwrap_or_default()))
}

fn secret_text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::settings::Origin;

    fn settings(value: Value) -> Settings {
        let mut settings = Settings::default();
        settings.set(&secrets::COMMANDS, value, Origin::Default);
        settings
    }

    #[track_caller]
    fn run_one(command: Value) -> Result<String, String> {
        let commands = commands(&settings(json!({ "A": command }))).map_err(|error| error.to_string())?;
        let values = run(&commands, Duration::from_secs(10)).map_err(|error| error.to_string())?;
        Ok(values["A"].0.clone())
    }

    #[test]
    fn commands_print_values() {
        assert_eq!(run_one(json!("printf 'a b\\n'")), Ok("a b".into()));
        assert_eq!(run_one(json!(["printf", "%s", "$HOME"])), Ok("$HOME".into()));
        assert_eq!(run_one(json!("printf 'line 1\\nline 2\\n'")), Ok("line 1\nline 2".into()));
    }

    #[test]
    fn errors_name_the_variable_but_not_the_output() {
        for (command, want) in [
            (
                json!("echo hush; echo hush >&2; exit 3"),
                "secrets.commands.A: the command failed with exit status: 3",
            ),
            (json!(":"), "secrets.commands.A: the command printed nothing"),
            (json!(["/nonexistent/x"]), "secrets.commands.A: /nonexistent/x cannot be started"),
            (
                json!("head -c 70000 /dev/zero"),
                "secrets.commands.A: its output cannot be used: file too large",
            ),
            (json!("printf '\\377'"), "secrets.commands.A: its output cannot be used"),
            (json!(7), "secrets.commands.A: expected a command"),
            (json!([]), "secrets.commands.A: expected a command"),
            (json!(["x", 7]), "secrets.commands.A: expected a command"),
        ] {
            let error = run_one(command.clone()).unwrap_err();
            assert!(error.starts_with(want) && !error.contains("hush"), "{command}: {error}");
        }
        let named = commands(&settings(json!({"a-b": "x"}))).unwrap_err().to_string();
        assert!(named.contains("secrets.commands.a-b: the name is no variable"), "{named}");
        assert!(commands(&settings(json!("x"))).unwrap_err().to_string().contains("expected a map"));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "bounds the duration of a wait in real time")]
    fn command_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; wait", pid.display());
        let commands = commands(&settings(json!({ "A": script }))).unwrap();
        let started = Instant::now();
        let error = run(&commands, Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.ends_with("the command did not end within 0.3 s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(60));
        let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A killed process stays as a zombie where nothing reaps it.
        while !state().is_empty() && !state().contains(") Z ") {
            thread::yield_now();
        }
    }

    #[test]
    fn credentials_are_files_named_like_variables() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("TELEGRAM_BOT_TOKEN"), "1:a\n").unwrap();
        fs::write(folder.path().join("tls.key"), [0xff]).unwrap();
        let found = credentials(Some(folder.path())).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found["TELEGRAM_BOT_TOKEN"], ("1:a".to_owned(), VariableSource::Credential));
        fs::write(folder.path().join("A"), [0xff]).unwrap();
        assert!(
            credentials(Some(folder.path())).unwrap_err().to_string().contains("/A: the credential cannot")
        );
        assert_eq!(credentials(None), Ok(Variables::new()));
        assert_eq!(credentials(Some(&folder.path().join("gone"))), Ok(Variables::new()));
    }
}
