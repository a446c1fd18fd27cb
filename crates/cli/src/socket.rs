//! Path of the control socket. Socket paths are limited to 108 bytes; a home path may be longer.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest path that every system can bind, with one byte to spare.
const MAX_PATH: usize = 100;

/// The socket path of a gateway that starts on this home.
pub fn path_for(home: &Path, env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let direct = home.join("petasos.sock");
    if direct.as_os_str().len() <= MAX_PATH {
        return direct;
    }
    let name = format!("{:016x}.sock", fnv(home.as_os_str().as_bytes()));
    let runtime = env("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let short =
        runtime.map(|dir| dir.join("petasos").join(&name)).filter(|it| it.as_os_str().len() <= MAX_PATH);
    short.unwrap_or_else(|| {
        PathBuf::from(format!("/tmp/petasos-{}", rustix::process::getuid().as_raw())).join(name)
    })
}

/// Creates the directory of a socket outside the home. Refuses a directory in `/tmp` that another user could
/// have created.
pub fn create_directory(socket: &Path) -> io::Result<()> {
    let Some(dir) = socket.parent() else { return Ok(()) };
    if dir.exists() && !dir.starts_with("/tmp") {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let found = fs::symlink_metadata(dir)?;
    let ours =
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o077 == 0;
    if ours || !dir.starts_with("/tmp/petasos-") {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} belongs to another user", dir.display())))
}

/// FNV-1a: stable across builds. Not security-relevant.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(home: &str, runtime: Option<&str>, want_prefix: &str) {
        let env = |name: &str| runtime.filter(|_| name == "XDG_RUNTIME_DIR").map(OsString::from);
        let path = path_for(Path::new(home), env);
        assert!(path.starts_with(want_prefix), "{}", path.display());
        assert!(path.as_os_str().len() <= MAX_PATH);
    }

    #[test]
    fn long_homes_use_a_socket_outside_the_home() {
        let long = format!("/home/{}", "x".repeat(120));
        check("/home/a/.petasos", None, "/home/a/.petasos");
        check(&long, Some("/run/user/7"), "/run/user/7/petasos");
        check(&long, None, "/tmp");
        check(&long, Some("relative"), "/tmp");
        check(&long, Some(&long), "/tmp");
    }

    #[test]
    fn socket_path_is_unique_per_home() {
        let of = |letter: &str| path_for(Path::new(&format!("/{}", letter.repeat(150))), |_| None);
        assert_ne!(of("x"), of("y"));
        assert_eq!(of("x"), of("x"));
    }
}
