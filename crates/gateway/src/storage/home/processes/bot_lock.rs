//! Things of which a machine has one, whichever home they are used from: a bot's token.
//!
//! One file for each, `<scope>-<hash of what it is>.lock`, in a directory that all gateways of this family share. It
//! says who uses the thing; whoever finds a live gateway named there leaves it alone. The file is made when a link
//! connects and removed when it has ended; a crash leaves it behind, and the next gateway sees that its owner is dead.
//! Taking is one at a time (`.guard`), and a file appears with its contents or not at all. Everything here blocks.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use petasos_core::lifecycle::stamp;
use petasos_core::{Platform, Secret};
use serde::Deserialize;
use serde_json::json;

use crate::clock;
use crate::home::process::{self, Record};

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sole {
    pub scope: &'static str,
    /// Whose link needs it.
    pub platform: Platform,
    /// What tells it from others of its kind. Never written down, only its hash.
    pub identity: Secret,
    /// Where all gateways of this machine look: [`directory`].
    pub directory: PathBuf,
    /// For those who find it taken.
    pub home: PathBuf,
}

/// Ours. Dropping it leaves the file, which means nothing once this process has ended.
#[derive(Debug)]
pub struct Scoped {
    path: PathBuf,
    record: Record,
}

#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("{platform} is in use by another gateway on this machine (pid {pid}{})", at(.home))]
    Held { platform: Platform, pid: u32, home: Option<String> },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

fn at(home: &Option<String>) -> String {
    home.as_ref().map(|home| format!(", home {home}")).unwrap_or_default()
}

/// What we read of a file.
#[derive(Debug, Deserialize)]
struct Owner {
    #[serde(flatten)]
    process: Record,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    home: Option<String>,
}

/// Where the files are. `None`: this process has no place of its own, and shares nothing.
pub fn directory(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = named("HERMES_GATEWAY_LOCK_DIR") {
        return Some(directory);
    }
    let state = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("hermes/gateway-locks"))
}

impl Sole {
    /// Takes it for this process.
    pub fn take(&self) -> Result<Scoped, NotTaken> {
        let (hash, platform) = (hash(&self.identity), self.platform);
        let path = self.directory.join(format!("{}-{hash}.lock", self.scope));
        let failed = |error| NotTaken::Io { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(failed)?;
        let _guard = guard(&self.directory).map_err(failed)?;
        let record = Record::of_this_process();
        if let Some(owner) = live_owner(&path, &record).map_err(failed)? {
            let Owner { process, metadata } = owner;
            return Err(NotTaken::Held { platform, pid: process.pid, home: metadata.home });
        }
        let mut text = json!(record);
        text["scope"] = self.scope.into();
        text["identity_hash"] = hash.into();
        text["metadata"] = json!({ "platform": platform.as_str(), "home": self.home });
        text["updated_at"] = stamp::format(clock::now()).into();
        put(&path, text.to_string().as_bytes()).map_err(failed)?;
        Ok(Scoped { path, record })
    }
}

impl Scoped {
    /// Lets go. A file that is another one's by now stays.
    pub fn release(self) -> io::Result<()> {
        let Some(directory) = self.path.parent() else { return Ok(()) };
        let _guard = guard(directory)?;
        release(&self.path, &self.record)
    }
}

/// Lets go of everything that a gateway had which is gone now.
pub fn release_of(directory: &Path, record: &Record) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let _guard = guard(directory)?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "lock") {
            release(&path, record)?;
        }
    }
    Ok(())
}

fn release(path: &Path, record: &Record) -> io::Result<()> {
    match read(path)? {
        Some(owner) if owner.process.is_same(record) => std::fs::remove_file(path),
        Some(_) | None => Ok(()),
    }
}

/// Somebody else who uses it at this moment.
fn live_owner(path: &Path, me: &Record) -> io::Result<Option<Owner>> {
    let Some(owner) = read(path)? else { return Ok(None) };
    let them = &owner.process;
    let lives = them.is_alive() && !them.is_suspended() && process::is_gateway(them.pid);
    Ok((lives && !them.is_same(me)).then_some(owner))
}

/// `None`: no file, or one that says nothing.
fn read(path: &Path) -> io::Result<Option<Owner>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whatever was there before is out of date.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _never_made = std::fs::remove_file(&beside);
    }
    written
}

/// Somebody who was stopped in the middle must not hold up everybody else.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// For the time of one look and one write.
fn guard(directory: &Path) -> io::Result<File> {
    let path = directory.join(".guard");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOOK),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The first 16 digits of its SHA-256, as all gateways of this family name it.
fn hash(identity: &Secret) -> String {
    let hash = digest::digest(&digest::SHA256, identity.expose().as_bytes());
    hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt;

    fn sole(directory: &Path) -> Sole {
        let (directory, home) = (directory.into(), "/h".into());
        let platform = Platform::parse("telegram").unwrap();
        Sole { scope: "telegram-bot-token", platform, identity: Secret::new("123:abc"), directory, home }
    }

    fn file(directory: &Path) -> PathBuf {
        directory.join(format!("telegram-bot-token-{}.lock", hash(&sole(directory).identity)))
    }

    #[test]
    fn what_is_taken_says_who_has_it_and_keeps_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let taken = sole(&dir.path().join("a/b")).take().unwrap();
        assert_eq!(hash(&Secret::new("abc")), "ba7816bf8f01cfea");
        let text = std::fs::read_to_string(&taken.path).unwrap();
        assert!(!text.contains("123:abc") && taken.path == file(&dir.path().join("a/b")), "{text}");
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&told["pid"], &told["kind"]), (&std::process::id().into(), &"hermes-gateway".into()));
        assert_eq!(
            (&told["scope"], &told["metadata"]["platform"]),
            (&"telegram-bot-token".into(), &"telegram".into())
        );
        assert_eq!((&told["metadata"]["home"], told["updated_at"].is_string()), (&"/h".into(), true));
        assert_eq!(taken.path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let path = taken.path.clone();
        taken.release().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_nobody_uses_any_more_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let me = Record::of_this_process();
        // Dead; reborn as another; alive, but no gateway; not readable.
        for left in [
            json!({"pid": u32::MAX}).to_string(),
            json!({"pid": me.pid, "start_time": 1}).to_string(),
            json!({"pid": 1}).to_string(),
            "junk".into(),
            String::new(),
        ] {
            std::fs::write(file(dir.path()), &left).unwrap();
            assert!(sole(dir.path()).take().is_ok(), "{left}");
        }
    }

    #[test]
    fn only_what_belonged_to_one_gateway_is_let_go_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let taken = sole(dir.path()).take().unwrap();
        let other = Record { start_time: Some(1), ..Record::of_this_process() };
        release_of(dir.path(), &other).unwrap();
        assert!(taken.path.exists());
        release_of(dir.path(), &taken.record).unwrap();
        assert!(!taken.path.exists());
        taken.release().unwrap();
        release_of(&dir.path().join("missing"), &other).unwrap();
    }

    #[test]
    fn the_files_are_where_all_gateways_look() {
        let at = |env: &[(&str, &str)]| {
            directory(|asked| env.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.into()))
        };
        let all = [("HERMES_GATEWAY_LOCK_DIR", "/l"), ("XDG_STATE_HOME", "/s"), ("HOME", "/h")];
        assert_eq!(at(&all), Some("/l".into()));
        assert_eq!(at(&all[1..]), Some("/s/hermes/gateway-locks".into()));
        assert_eq!(at(&all[2..]), Some("/h/.local/state/hermes/gateway-locks".into()));
        assert_eq!(at(&[("XDG_STATE_HOME", "relative")]), None);
    }
}
