use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Support;

/// Rights of a command. Everything else is refused by the kernel.
///
/// It contains paths and numbers only: it is an argument of the launcher, which other users of the machine can
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Files and directories that may be read and executed, with everything below. Missing ones are skipped.
    pub read: Vec<PathBuf>,
    /// Files and directories that may also be changed. They must exist.
    pub write: Vec<PathBuf>,
    /// Existing paths below writable ones that must not be changed. Needs namespaces.
    pub protected: Vec<PathBuf>,
    /// Shown as `/tmp` where there are namespaces; one of the writable directories.
    pub tmp: PathBuf,
    pub network: Network,
    pub limits: Limits,
    /// Layers that must be applied; the command does not run without them.
    pub layers: Support,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    None,
    /// TCP to this port only, of any machine: Landlock does not restrict addresses.
    Port(u16),
    Full,
}

/// Resource limits; `None` leaves what the gateway has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processes and threads in the sandbox. Needs namespaces: without, the kernel counts all of the user.
    pub processes: Option<u64>,
    /// Size of a written file in bytes.
    pub file_size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { processes: Some(4096), file_size: None }
    }
}
