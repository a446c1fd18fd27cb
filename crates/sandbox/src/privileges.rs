//! Capabilities, privileges gained by execution, inherited descriptors and resource limits.

use nix::errno::Errno as NixErrno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{Error, Policy};

/// From here on no program gains privileges by being executed.
pub(crate) fn forbid_new_ones() -> Result<(), Error> {
    rustix::thread::set_no_new_privs(true).map_err(Error::system("no_new_privs"))
}

/// Only root has any; the gateway may run as root in a container.
pub(crate) fn drop_capabilities() -> Result<(), Error> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(Error::system("dropping capabilities"))
}

pub(crate) fn limit_resources(policy: &Policy) -> Result<(), Error> {
    lower(Resource::Core, Some(0))?;
    lower(Resource::Nproc, policy.limits.processes.filter(|_| policy.layers.namespaces))?;
    lower(Resource::Fsize, policy.limits.file_size)
}

fn lower(resource: Resource, limit: Option<u64>) -> Result<(), Error> {
    let Some(limit) = limit else { return Ok(()) };
    let now = rustix::process::getrlimit(resource);
    let limit = Some(now.maximum.map_or(limit, |maximum| maximum.min(limit)));
    rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })
        .map_err(Error::system("resource limits"))
}

/// Descriptors other than the three standard ones belong to the gateway or to its parent.
pub(crate) fn close_inherited_files() -> Result<(), Error> {
    let unreadable = |source| Error::System { what: "/proc/self/fd", source };
    let entries = std::fs::read_dir("/proc/self/fd").map_err(unreadable)?;
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        match nix::unistd::close(descriptor) {
            // One of them was the listed directory.
            Ok(()) | Err(NixErrno::EBADF) => {}
            Err(errno) => return Err(Error::System { what: "inherited files", source: errno.into() }),
        }
    }
    Ok(())
}
