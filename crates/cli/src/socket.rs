//! Where the control socket is. Socket paths are short by nature (108 bytes), homes need not be.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest path that can be bound everywhere, with a letter to spare.
const LONGEST: usize = 100;

/// The path for a gateway that starts on this home.
pub fn place(home: &Path, env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let direct = home.join("petasos.sock");
    if direct.as_os_str().len() <= LONGEST {
        return direct;
    }
    let name = format!("{:016x}.sock", fnv(home.as_os_str().as_bytes()));
    let runtime = env("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let short =
        runtime.map(|dir| dir.join("petasos").join(&name)).filter(|it| it.as_os_str().len() <= LONGEST);
    short.unwrap_or_else(|| {
        PathBuf::from(format!("/tmp/petasos-{}", rustix::process::getuid().as_raw())).join(name)
    })
}

/// Makes the directory of a socket that is not in the home. One that others could have made is refused.
pub fn prepare(socket: &Path) -> io::Result<()> {
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
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} belongs to somebody else", dir.display()),
    ))
}

/// FNV-1a: the same number in every build, for ever. Nobody's safety depends on it.
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
        let place = place(Path::new(home), env);
        assert!(place.starts_with(want_prefix), "{}", place.display());
        assert!(place.as_os_str().len() <= LONGEST);
    }

    #[test]
    fn a_short_home_holds_its_socket_and_a_long_one_has_it_elsewhere() {
        let long = format!("/home/{}", "x".repeat(120));
        check("/home/a/.petasos", None, "/home/a/.petasos");
        check(&long, Some("/run/user/7"), "/run/user/7/petasos");
        check(&long, None, "/tmp");
        check(&long, Some("relative"), "/tmp");
        check(&long, Some(&long), "/tmp");
    }

    #[test]
    fn two_homes_have_two_sockets() {
        let of = |letter: &str| place(Path::new(&format!("/{}", letter.repeat(150))), |_| None);
        assert_ne!(of("x"), of("y"));
        assert_eq!(of("x"), of("x"));
    }
}
