//! How a command is started: by which shell, where, with what around it.
//!
//! A session's directory and exported variables outlive its commands: the shell writes both down as it leaves, and
//! the next one reads them. Identity and secrets are never among them; the former is given anew each time.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pty_process::{Pty, Size};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::environment::{self, Variable};
use super::private_directory;
use crate::file_name::file_name;
use crate::tools::SessionCtx;

/// A program that is about to be started.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: PathBuf,
    pub(super) env: Vec<Variable>,
}

impl Launch {
    /// In a process group of its own, both outputs in one pipe, no input.
    pub(super) fn piped(self) -> io::Result<(Child, pipe::Receiver)> {
        let (output, writer) = io::pipe()?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        Ok((child, pipe::Receiver::from_owned_fd(output.into())?))
    }

    /// In a process group of its own, both outputs at the end of a file, input from a pipe. It needs nobody to read
    /// along, so it goes on when we are gone.
    pub(super) fn into_file(self, file: File) -> io::Result<Child> {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        command.spawn()
    }

    /// In a session of its own, with a terminal.
    pub(super) fn on_terminal(self) -> io::Result<(Child, Pty)> {
        let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
        pty.resize(Size::new(30, 120)).map_err(io::Error::other)?;
        let command = pty_process::Command::new(self.program).args(self.args).current_dir(self.cwd);
        let command = command.env_clear().envs(self.env).env("TERM", "xterm");
        Ok((command.spawn(pts).map_err(io::Error::other)?, pty))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.cwd).env_clear().envs(self.env.iter().cloned());
        command.process_group(0);
        command
    }
}

/// What one session's commands leave to the next.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    cwd: PathBuf,
    env: PathBuf,
}

impl Memory {
    pub(super) fn of(directory: &Path, ctx: &SessionCtx) -> io::Result<Self> {
        let own = directory.join("sessions").join(file_name(ctx.key.as_str()));
        private_directory(&own)?;
        Ok(Self { cwd: own.join("cwd"), env: own.join("env") })
    }

    /// Where the next command starts: where the last one ended, or as near to it as still exists, but not above the
    /// directory of the first, which is there.
    pub(super) fn cwd(&self, first: &Path) -> PathBuf {
        let last = std::fs::read_to_string(&self.cwd).unwrap_or_default();
        let last = Path::new(last.strip_suffix('\n').unwrap_or(&last));
        if last.is_dir() {
            return last.to_owned();
        }
        let first = first.canonicalize().unwrap_or_else(|_| first.to_owned());
        let near = last.ancestors().find(|directory| directory.is_dir());
        near.filter(|near| !first.starts_with(near)).unwrap_or(&first).to_owned()
    }

    /// A command that remembers what it leaves.
    pub(super) fn remembered(&self, ctx: &SessionCtx, command: &str) -> String {
        let (env, cwd) = (quoted(&self.env), quoted(&self.cwd));
        let (new_env, new_cwd) = (quoted(beside(&self.env)), quoted(beside(&self.cwd)));
        let given: Vec<_> = environment::given_anew(ctx).collect();
        let given = given.join(" ");
        format!(
            "__petasos_leave() {{\n\
             __petasos_code=$?\n\
             trap - EXIT\n\
             {{ (umask 077; unset {given} __petasos_code; export -p >{new_env}) && mv -f {new_env} {env}\n\
             (umask 077; pwd -P >{new_cwd}) && mv -f {new_cwd} {cwd}; }} 2>/dev/null\n\
             exit $__petasos_code\n\
             }}\n\
             {}\ntrap __petasos_leave EXIT\neval {}",
            self.recall(),
            quoted(command)
        )
    }

    /// A command that starts from what was left, and leaves nothing.
    pub(super) fn recalled(&self, command: &str) -> String {
        format!("{}\neval {}", self.recall(), quoted(command))
    }

    fn recall(&self) -> String {
        let env = quoted(&self.env);
        format!("[ -r {env} ] && . {env}")
    }

    /// The first command of a session reads the owner's profile; later ones have what it set.
    pub(super) fn flag(&self, login: bool) -> &'static str {
        if self.env.exists() || !login { "-c" } else { "-lc" }
    }
}

/// The owner's shell if we can talk to it, else the nearest one that we can.
pub(super) fn shell() -> OsString {
    let own = std::env::var_os("SHELL").map(PathBuf::from);
    let speaks = |shell: &PathBuf| {
        let name = shell.file_name().and_then(OsStr::to_str).unwrap_or_default();
        ["bash", "sh", "dash", "zsh", "ksh"].contains(&name) && shell.is_file()
    };
    let usual = || ["/bin/bash", "/usr/bin/bash"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    own.filter(speaks).or_else(usual).unwrap_or_else(|| "/bin/sh".into()).into_os_string()
}

/// As one word of a shell's language.
pub(super) fn quoted(text: impl AsRef<OsStr>) -> String {
    format!("'{}'", text.as_ref().to_string_lossy().replace('\'', r"'\''"))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn a_directory_that_is_gone_gives_way_to_the_nearest_that_is_not() {
        let home = tempfile::TempDir::new().unwrap();
        let memory = Memory { cwd: home.path().join("cwd"), env: home.path().join("env") };
        let (first, other) = (home.path().join("workspace"), home.path().join("other"));
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&other).unwrap();
        let after = |last: &Path| {
            std::fs::write(&memory.cwd, format!("{}\n", last.display())).unwrap();
            memory.cwd(&first)
        };
        assert_eq!(memory.cwd(&first), first, "nothing is remembered");
        assert_eq!(after(home.path()), home.path(), "it was there on purpose");
        assert_eq!(after(&other.join("gone/deeper")), other);
        assert_eq!(after(&first.join("gone/deeper")), first);
        assert_eq!(after(&home.path().join("gone/deeper")), first, "not above where it began");
        assert_eq!(after(Path::new("/gone")), first);
    }
}
