//! Starts commands: which shell, in which directory, with which environment.
//!
//! A session's working directory and exported variables persist: the shell saves both when it exits, and the
//! next command loads them. Session identity and secrets are never saved; each command gets the identity
//! anew.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pty_process::{Pty, Size};
use rustix::fs::{Mode, OFlags};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::environment::{self, Variable};
use super::private_directory;
use super::sandbox::Place;
use crate::files::file_name;
use crate::tools::SessionCtx;

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: PathBuf,
    pub(super) env: Vec<Variable>,
}

impl Launch {
    /// In its own process group, both outputs in one pipe, no input.
    pub(super) fn piped(self) -> io::Result<(Child, pipe::Receiver)> {
        let (output, writer) = io::pipe()?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        Ok((child, pipe::Receiver::from_owned_fd(output.into())?))
    }

    /// In its own process group, both outputs appended to a file, input from a pipe. It needs no reader, so
    /// it survives the gateway.
    pub(super) fn into_file(self, file: File) -> io::Result<Child> {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        command.spawn()
    }

    /// In its own session, on a pseudo terminal.
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

/// The directory of a session below `terminal/sessions/`. Sandboxed commands can change what is in three
/// directories of it, but cannot replace these.
#[derive(Debug)]
pub(super) struct SessionDirectory(PathBuf);

impl SessionDirectory {
    pub(super) fn open(directory: &Path, ctx: &SessionCtx) -> io::Result<Self> {
        let own = directory.join("sessions").join(file_name(ctx.key.as_str()));
        private_directory(&own)?;
        let own = Self(own.canonicalize()?);
        for changeable in [own.home(), own.tmp(), own.state()] {
            private_directory(&changeable)?;
        }
        Ok(own)
    }

    pub(super) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// A sandboxed shell could write anything into its variables, so one outside has its own.
    pub(super) fn shell_state(&self, place: Place<'_>) -> ShellState {
        let of = if place.sandbox.is_some() { self.state() } else { self.0.clone() };
        ShellState { cwd: of.join("cwd"), env: of.join("env") }
    }
}

/// Working directory and variables that persist between the commands of a session.
#[derive(Debug, Clone)]
pub(super) struct ShellState {
    cwd: PathBuf,
    env: PathBuf,
}

impl ShellState {
    /// The directory of the next command: where the last one ended or its nearest existing ancestor, but not
    /// above the directory of the first command.
    pub(super) fn cwd(&self, first: &Path) -> PathBuf {
        let last = read_path(&self.cwd).unwrap_or_default();
        let last = Path::new(last.strip_suffix('\n').unwrap_or(&last));
        if last.is_dir() {
            return last.to_owned();
        }
        let first = first.canonicalize().unwrap_or_else(|_| first.to_owned());
        let near = last.ancestors().find(|directory| directory.is_dir());
        near.filter(|near| !first.starts_with(near)).unwrap_or(&first).to_owned()
    }

    /// The command, wrapped so that it loads and saves the state.
    pub(super) fn wrap_saving(&self, ctx: &SessionCtx, command: &str) -> String {
        let env = quoted(&self.env);
        let cwd = quoted(&self.cwd);
        let new_env = quoted(beside(&self.env));
        let new_cwd = quoted(beside(&self.cwd));
        let volatile: Vec<_> = environment::volatile_names(ctx).collect();
        let volatile = volatile.join(" ");
        format!(
            "__petasos_leave() {{\n\
             __petasos_code=$?\n\
             trap - EXIT\n\
             {{ (umask 077; unset {volatile} __petasos_code; export -p >{new_env}) && mv -f {new_env} {env}\n\
             (umask 077; pwd -P >{new_cwd}) && mv -f {new_cwd} {cwd}; }} 2>/dev/null\n\
             exit $__petasos_code\n\
             }}\n\
             {}\ntrap __petasos_leave EXIT\neval {}",
            self.load_script(),
            quoted(command)
        )
    }

    /// The command, wrapped so that it loads the state but does not save it.
    pub(super) fn wrap_loading(&self, command: &str) -> String {
        format!("{}\neval {}", self.load_script(), quoted(command))
    }

    fn load_script(&self) -> String {
        let env = quoted(&self.env);
        format!("[ -r {env} ] && . {env}")
    }

    /// The first command of a session reads the owner's profile; later ones load what it set.
    pub(super) fn shell_flag(&self, login: bool) -> &'static str {
        if self.env.exists() || !login { "-c" } else { "-lc" }
    }
}

/// Reads a short regular file. A sandboxed command may have put anything in its place.
fn read_path(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    file.take(LONGEST_PATH).read_to_string(&mut text)?;
    Ok(text)
}

/// PATH_MAX and a line feed.
const LONGEST_PATH: u64 = 4097;

/// The owner's shell if it is supported, else bash or sh.
pub(super) fn shell() -> OsString {
    let own = std::env::var_os("SHELL").map(PathBuf::from);
    let speaks = |shell: &PathBuf| {
        let name = shell.file_name().and_then(OsStr::to_str).unwrap_or_default();
        ["bash", "sh", "dash", "zsh", "ksh"].contains(&name) && shell.is_file()
    };
    let usual = || ["/bin/bash", "/usr/bin/bash"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    own.filter(speaks).or_else(usual).unwrap_or_else(|| "/bin/sh".into()).into_os_string()
}

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
    fn quotes_text_as_one_word() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn directory_is_read_from_a_regular_file_only() {
        let home = tempfile::TempDir::new().unwrap();
        let state = ShellState { cwd: home.path().join("cwd"), env: home.path().join("env") };
        let first = home.path().join("first");
        let other = home.path().join("other");
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(home.path().join("elsewhere"), format!("{}\n", other.display())).unwrap();
        std::os::unix::fs::symlink(home.path().join("elsewhere"), &state.cwd).unwrap();
        assert_eq!(state.cwd(&first), first, "a link");
        std::fs::remove_file(&state.cwd).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &state.cwd, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(state.cwd(&first), first, "a pipe");
    }

    #[test]
    fn missing_directory_falls_back_to_nearest_ancestor() {
        let home = tempfile::TempDir::new().unwrap();
        let state = ShellState { cwd: home.path().join("cwd"), env: home.path().join("env") };
        let first = home.path().join("workspace");
        let other = home.path().join("other");
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&other).unwrap();
        let after = |last: &Path| {
            std::fs::write(&state.cwd, format!("{}\n", last.display())).unwrap();
            state.cwd(&first)
        };
        assert_eq!(state.cwd(&first), first, "nothing is remembered");
        assert_eq!(after(home.path()), home.path(), "it was there on purpose");
        assert_eq!(after(&other.join("gone/deeper")), other);
        assert_eq!(after(&first.join("gone/deeper")), first);
        assert_eq!(after(&home.path().join("gone/deeper")), first, "not above where it began");
        assert_eq!(after(Path::new("/gone")), first);
    }
}
