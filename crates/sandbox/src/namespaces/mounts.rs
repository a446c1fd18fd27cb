//! The view of the file systems: read-only apart from what the policy allows to change, with private temporary
//! directories.
//!
//! Landlock already refuses to read and to write. It does not refuse to change the mode, the owner or the times
//! of a file; a read-only mount does.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::{Error, Policy};

/// Directories in which programs expect to create files whatever their settings.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const SHARED_MEMORY: &str = "/dev/shm";
const TERMINALS: &str = "/dev/pts";
/// Without anything of other programs in them.
pub(crate) const PRIVATE_DEVICES: [&str; 3] = [SHARED_MEMORY, TERMINALS, "/dev/ptmx"];

/// In new user and mount namespaces.
pub(super) fn restrict(policy: &Policy) -> Result<(), Error> {
    let directory = std::env::current_dir().map_err(system("the working directory"))?;
    let mounts = Mount::all()?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(Error::system("private mounts"))?;
    for path in policy.write.iter().chain(&policy.protected) {
        rustix::mount::mount_bind_recursive(path, path).map_err(Error::system("mounting a writable path"))?;
    }
    for mount in mounts.iter().filter(|mount| !mount.is_in(&policy.write)) {
        mount.forbid_writing(&mount.path)?;
    }
    for path in &policy.protected {
        Mount::of(&mounts, path).forbid_writing(path)?;
    }
    mount_temporary(policy)?;
    // The directory that was entered before is below the read-only mount.
    std::env::set_current_dir(directory).map_err(system("the working directory"))
}

fn mount_temporary(policy: &Policy) -> Result<(), Error> {
    let used = |path: &Path| policy.read.iter().chain(&policy.write).any(|it| it.starts_with(path));
    for path in TEMPORARY.map(Path::new).into_iter().filter(|path| is_directory(path) && !used(path)) {
        rustix::mount::mount_bind(&policy.tmp, path).map_err(Error::system("mounting /tmp"))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    if Path::new(SHARED_MEMORY).is_dir() {
        rustix::mount::mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, c"mode=1777,size=25%")
            .map_err(Error::system("mounting /dev/shm"))?;
    }
    if Path::new(TERMINALS).is_dir() {
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount("devpts", TERMINALS, "devpts", flags, c"newinstance,ptmxmode=0666,mode=620")
            .map_err(Error::system("mounting /dev/pts"))?;
    }
    Ok(())
}

/// A symbolic link is followed to a directory that has its own entry.
fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_dir())
}

/// A line of `/proc/self/mountinfo`.
struct Mount {
    path: PathBuf,
    flags: MountFlags,
    /// Looking at it would mount something.
    automatic: bool,
}

impl Mount {
    fn all() -> Result<Vec<Self>, Error> {
        let table = std::fs::read("/proc/self/mountinfo").map_err(system("/proc/self/mountinfo"))?;
        Ok(table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect())
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let path = unescaped(fields.nth(4)?);
        let flags = flags(fields.next()?);
        let automatic = fields.skip_while(|field| *field != b"-").nth(1) == Some(b"autofs");
        Some(Self { path, flags, automatic })
    }

    fn of<'a>(mounts: &'a [Self], path: &Path) -> &'a Self {
        const ROOT: &Mount = &Mount { path: PathBuf::new(), flags: MountFlags::empty(), automatic: false };
        let around = mounts.iter().filter(|mount| path.starts_with(&mount.path));
        around.max_by_key(|mount| mount.path.as_os_str().len()).unwrap_or(ROOT)
    }

    fn is_in(&self, paths: &[PathBuf]) -> bool {
        paths.iter().any(|path| self.path.starts_with(path))
    }

    /// A remount must repeat the flags that the mount has.
    fn forbid_writing(&self, path: &Path) -> Result<(), Error> {
        if self.automatic {
            return Ok(());
        }
        let flags = self.flags | MountFlags::BIND | MountFlags::RDONLY;
        match rustix::mount::mount_remount(path, flags, "") {
            Ok(()) => Ok(()),
            // The path leads to something else, or nowhere, for this user: nothing can be written through it.
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(()),
            Err(errno) => Err(Error::system("mounting read-only")(errno)),
        }
    }
}

fn flags(options: &[u8]) -> MountFlags {
    options.split(|byte| *byte == b',').fold(MountFlags::empty(), |flags, option| {
        flags
            | match option {
                b"nosuid" => MountFlags::NOSUID,
                b"nodev" => MountFlags::NODEV,
                b"noexec" => MountFlags::NOEXEC,
                b"noatime" => MountFlags::NOATIME,
                b"nodiratime" => MountFlags::NODIRATIME,
                b"relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            }
    })
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\').and_then(|it| std::str::from_utf8(it).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &behind[3..];
            }
            None => {
                path.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_path_and_flags_of_a_mount() {
        let line = br"36 35 98:0 /m /mnt\040a\134b rw,nosuid,noatime shared:1 - ext4 /dev/sda1 rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.path, Path::new(r"/mnt a\b"));
        assert_eq!(mount.flags, MountFlags::NOSUID | MountFlags::NOATIME);
        assert!(!mount.automatic);
        let line = b"36 35 0:1 / /home rw,relatime - autofs systemd-1 rw";
        assert!(Mount::parse(line).unwrap().automatic);
        assert!(Mount::parse(b"").is_none());
    }
}
