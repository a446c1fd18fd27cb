use std::path::PathBuf;

/// Why a policy could not be applied. The command did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the policy cannot be read: {0}")]
    Policy(#[from] serde_json::Error),
    #[error("no command was given")]
    NoCommand,
    #[error("{} cannot be opened: {source}", path.display())]
    Path { path: PathBuf, source: landlock::PathFdError },
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    #[error("Landlock enforces only a part of the policy")]
    PartlyEnforced,
    #[error("this kernel cannot restrict the ports of TCP")]
    Ports,
    #[error("parts of a writable directory cannot be protected without namespaces")]
    Protected,
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("the launcher failed its trial: {0}")]
    Trial(String),
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { what, source: errno.into() }
    }

    pub(crate) fn nix(what: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System { what, source: errno.into() }
    }
}

impl From<seccompiler::BackendError> for Error {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Seccomp(error.into())
    }
}
