//! Bot locks: one process per bot token on a machine, across all homes.
//!
//! One file per token, `<scope>-<hash>.lock`, in a directory that all compatible gateways share. It names the process that
//! uses the token. A link creates it when it connects and removes it when it ends; after a crash the next gateway sees that
//! the owner is dead. Acquiring is serialised (`.guard`), and files are replaced atomically. Everything here blocks.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest;
use petasos_core::lifecycle::stamp;
use petasos_core::text::hex;
use petasos_core::{Platform, Secret};
use serde::Deserialize;
use serde_json::json;

use crate::clock;
use crate::home::process::{self, ProcessRecord};

/// A lock for one bot token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotLock {
    pub scope: &'static str,
    /// The link that needs the lock.
    pub platform: Platform,
    /// The token. Only its hash is written to disk.
    pub identity: Secret,
    /// See [`directory`].
    pub directory: PathBuf,
    /// Written to the file, for the error message of another gateway.
    pub home: PathBuf,
}

/// An acquired lock. Dropping it leaves the file, which is stale once this process has ended.
#[derive(Debug)]
pub struct BotLockGuard {
    path: PathBuf,
    record: ProcessRecord,
}

#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    #[error("{platform} is in use by another gateway on this machine (pid {pid}{})", home_suffix(.home))]
    Held { platform: Platform, pid: u32, home: Option<String> },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

fn home_suffix(home: &Option<String>) -> String {
    home.as_ref().map(|home| format!(", home {home}")).unwrap_or_default()
}

#[derive(Debug, Deserialize)]
struct LockOwner {
    #[serde(flatten)]
    process: ProcessRecord,
    #[serde(default)]
    metadata: LockMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct LockMetadata {
    #[serde(default)]
    home: Option<String>,
}

/// The shared lock directory. `None`: the environment names none.
pub fn directory(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = named("HERMES_GATEWAY_LOCK_DIR") {
        return Some(directory);
    }
    let state = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("hermes/gateway-locks"))
}

impl BotLock {
    pub fn acquire(&self) -> Result<BotLockGuard, AcquireError> {
        let hash = hash(&self.identity);
        let platform = self.platform;
        let path = self.directory.join(format!("{}-{hash}.lock", self.scope));
        let failed = |error| AcquireError::Io { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(failed)?;
        let _guard = lock_directory(&self.directory).map_err(failed)?;
        let record = ProcessRecord::of_this_process();
        if let Some(owner) = live_owner(&path, &record).map_err(failed)? {
            let LockOwner { process, metadata } = owner;
            return Err(AcquireError::Held { platform, pid: process.pid, home: metadata.home });
        }
        let mut text = json!(record);
        text["scope"] = self.scope.into();
        text["identity_hash"] = hash.into();
        text["metadata"] = json!({ "platform": platform.as_str(), "home": self.home });
        text["updated_at"] = stamp::format(clock::now()).into();
        replace(&path, text.to_string().as_bytes()).map_err(failed)?;
        Ok(BotLockGuard { path, record })
    }
}

impl BotLockGuard {
    /// Releases the lock, unless another process has taken over the file.
    pub fn release(self) -> io::Result<()> {
        let Some(directory) = self.path.parent() else { return Ok(()) };
        let _guard = lock_directory(directory)?;
        release(&self.path, &self.record)
    }
}

/// Releases all locks of a gateway that has ended.
pub fn release_of(directory: &Path, record: &ProcessRecord) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let _guard = lock_directory(directory)?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "lock") {
            release(&path, record)?;
        }
    }
    Ok(())
}

fn release(path: &Path, record: &ProcessRecord) -> io::Result<()> {
    match read(path)? {
        Some(owner) if owner.process.is_same(record) => std::fs::remove_file(path),
        Some(_) | None => Ok(()),
    }
}

/// Another live gateway that holds the lock.
fn live_owner(path: &Path, me: &ProcessRecord) -> io::Result<Option<LockOwner>> {
    let Some(owner) = read(path)? else { return Ok(None) };
    let them = &owner.process;
    let lives = them.is_alive() && !them.is_suspended() && process::is_gateway(them.pid);
    Ok((lives && !them.is_same(me)).then_some(owner))
}

/// `None`: missing or unreadable.
fn read(path: &Path) -> io::Result<Option<LockOwner>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _never_made = std::fs::remove_file(&beside);
    }
    written
}

/// A suspended process must not block the others for longer.
const GUARD_TIMEOUT: Duration = Duration::from_secs(2);
const GUARD_POLL: Duration = Duration::from_millis(10);

/// Locks the directory for one read and write.
#[expect(clippy::disallowed_methods, reason = "a file lock has no notification")]
fn lock_directory(directory: &Path) -> io::Result<File> {
    let path = directory.join(".guard");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let end = clock::monotonic() + GUARD_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if clock::monotonic() < end => std::thread::sleep(GUARD_POLL),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The first 16 hex digits of the SHA-256, compatible with other gateways.
fn hash(identity: &Secret) -> String {
    let hash = digest::digest(&digest::SHA256, identity.expose().as_bytes());
    hex(&hash.as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt;

    fn bot_lock(directory: &Path) -> BotLock {
        let directory = directory.into();
        let home = "/h".into();
        let platform = Platform::parse("telegram").unwrap();
        BotLock { scope: "telegram-bot-token", platform, identity: Secret::new("123:abc"), directory, home }
    }

    fn file(directory: &Path) -> PathBuf {
        directory.join(format!("telegram-bot-token-{}.lock", hash(&bot_lock(directory).identity)))
    }

    #[test]
    fn lock_file_names_owner_but_not_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let guard = bot_lock(&dir.path().join("a/b")).acquire().unwrap();
        assert_eq!(hash(&Secret::new("abc")), "ba7816bf8f01cfea");
        let text = std::fs::read_to_string(&guard.path).unwrap();
        assert!(!text.contains("123:abc") && guard.path == file(&dir.path().join("a/b")), "{text}");
        let owner: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&owner["pid"], &owner["kind"]), (&std::process::id().into(), &"hermes-gateway".into()));
        assert_eq!(
            (&owner["scope"], &owner["metadata"]["platform"]),
            (&"telegram-bot-token".into(), &"telegram".into())
        );
        assert_eq!((&owner["metadata"]["home"], owner["updated_at"].is_string()), (&"/h".into(), true));
        assert_eq!(guard.path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let path = guard.path.clone();
        guard.release().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn takes_over_stale_locks() {
        let dir = tempfile::tempdir().unwrap();
        let me = ProcessRecord::of_this_process();
        // Dead; pid reused; alive, but no gateway; unreadable.
        for left in [
            json!({"pid": u32::MAX}).to_string(),
            json!({"pid": me.pid, "start_time": 1}).to_string(),
            json!({"pid": 1}).to_string(),
            "junk".into(),
            String::new(),
        ] {
            std::fs::write(file(dir.path()), &left).unwrap();
            assert!(bot_lock(dir.path()).acquire().is_ok(), "{left}");
        }
    }

    #[test]
    fn release_of_releases_locks_of_that_process_only() {
        let dir = tempfile::tempdir().unwrap();
        let guard = bot_lock(dir.path()).acquire().unwrap();
        let other = ProcessRecord { start_time: Some(1), ..ProcessRecord::of_this_process() };
        release_of(dir.path(), &other).unwrap();
        assert!(guard.path.exists());
        release_of(dir.path(), &guard.record).unwrap();
        assert!(!guard.path.exists());
        guard.release().unwrap();
        release_of(&dir.path().join("missing"), &other).unwrap();
    }

    #[test]
    fn directory_follows_environment() {
        let locate = |env: &[(&str, &str)]| {
            directory(|asked| env.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.into()))
        };
        let all = [("HERMES_GATEWAY_LOCK_DIR", "/l"), ("XDG_STATE_HOME", "/s"), ("HOME", "/h")];
        assert_eq!(locate(&all), Some("/l".into()));
        assert_eq!(locate(&all[1..]), Some("/s/hermes/gateway-locks".into()));
        assert_eq!(locate(&all[2..]), Some("/h/.local/state/hermes/gateway-locks".into()));
        assert_eq!(locate(&[("XDG_STATE_HOME", "relative")]), None);
    }
}
