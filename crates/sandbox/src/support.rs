//! Which layers this kernel applies, found out in a trial.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use crate::{Error, Limits, Network, Policy, filesystem, launcher, privileges, syscalls};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Support {
    /// Version of the Landlock interface; 0 without Landlock.
    pub landlock: u8,
    pub seccomp: bool,
    /// User, process, network and mount namespaces.
    pub namespaces: bool,
}

/// Something that a sandbox without some layer does not confine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    Files,
    Sockets,
    Signals,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files (Landlock of Linux 6.2 is missing)",
            Self::Sockets => "sockets and system calls (seccomp is missing)",
            Self::Signals => {
                "signals to other processes (Landlock of Linux 6.12 and user namespaces are missing)"
            }
        })
    }
}

impl Support {
    pub const NONE: Self = Self { landlock: 0, seccomp: false, namespaces: false };

    /// Parts of the boundary that this kernel does not enforce.
    pub fn gaps(self) -> Vec<Gap> {
        let missing = [
            (self.landlock < filesystem::CONFINES_FILES, Gap::Files),
            (!self.seccomp, Gap::Sockets),
            (self.landlock < filesystem::CONFINES_SIGNALS && !self.namespaces, Gap::Signals),
        ];
        missing.into_iter().filter_map(|(missing, gap)| missing.then_some(gap)).collect()
    }

    /// Whether commands may run in the sandbox without a question.
    pub fn is_complete(self) -> bool {
        self.gaps().is_empty()
    }

    /// Applies every layer in a child of `launcher`, which is the program that calls [`launcher::run`].
    pub fn probe(launcher: &Path) -> Result<Self, Error> {
        let output = start(launcher, &[launcher::TRIAL.into()])?;
        if !output.status.success() {
            return Err(Error::Trial(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let support: Self = serde_json::from_slice(&output.stdout)?;
        let with_namespaces = Self { namespaces: true, ..support };
        let policy = Policy::of_trial(with_namespaces, vec!["/".into()]);
        let [_, json] = launcher::arguments(&policy)?;
        // A path below `/proc` of another process does not exist in a process namespace.
        let check = [json, "/proc/self/exe".into(), launcher::SUBCOMMAND.into(), launcher::CHECK.into()];
        // They are optional: a failure means that the kernel or its settings do not allow them.
        let allowed = start(launcher, &check)?.status.success();
        Ok(if allowed { with_namespaces } else { support })
    }

    /// Restricts the calling process step by step and reports the steps that took effect.
    pub(crate) fn of_this_process() -> Result<Self, Error> {
        privileges::forbid_new_ones()?;
        let layers =
            Self { landlock: filesystem::version(), seccomp: syscalls::are_filtered(), namespaces: false };
        launcher::restrict(&Policy::of_trial(layers, vec![]))?;
        layers.verify()?;
        Ok(layers)
    }

    /// Whether this process runs in its own process namespace, with a matching `/proc`.
    pub(crate) fn check_namespaces() -> Result<(), Error> {
        let own = std::process::id();
        let shown =
            std::fs::read_link("/proc/self").map_err(|source| Error::System { what: "/proc", source })?;
        if own > 2 || shown != Path::new(&own.to_string()) {
            return Err(Error::Trial(format!("process {own} is {} in /proc", shown.display())));
        }
        Ok(())
    }

    /// A layer that was applied must refuse something.
    fn verify(self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::Trial(format!("{what} although this should have been refused")));
        if self.landlock > 0 && !is_refused(std::fs::read_dir("/etc")) {
            return wrong("a directory was read");
        }
        if self.seccomp && !is_refused(UnixDatagram::unbound()) {
            return wrong("a socket was created");
        }
        if self.seccomp && UnixStream::pair().is_err() {
            return Err(Error::Trial("no connected sockets can be made".to_owned()));
        }
        Ok(())
    }
}

impl Policy {
    fn of_trial(layers: Support, read: Vec<PathBuf>) -> Self {
        Self {
            read,
            write: vec![],
            protected: vec![],
            tmp: std::env::temp_dir(),
            network: Network::None,
            limits: Limits::default(),
            layers,
        }
    }
}

fn start(launcher: &Path, arguments: &[OsString]) -> Result<Output, Error> {
    let mut trial = Command::new(launcher);
    trial.arg(launcher::SUBCOMMAND).args(arguments).stdin(Stdio::null());
    trial.output().map_err(|source| Error::System { what: "starting the trial", source })
}

fn is_refused<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}
