//! `write_file`: the whole file or nothing of it.
//!
//! The content goes to a temporary file beside its place, is synced, and takes the place in one step. A
//! crash leaves the old file, and perhaps a `.petasos-*.tmp` beside it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use super::workspace::{Workspace, explain, kind, show};
use super::{Outcome, SessionCtx, Stop};

/// Bytes of one file.
pub(super) const MOST: usize = 4 << 20;

pub(super) fn tool() -> Definition {
    Definition {
        name: "write_file",
        description: "Writes a text file of the workspace, replacing what is there. Missing directories are made.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Writes,
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Arguments {
    /// Path relative to the workspace
    path: String,
    /// The whole new content
    content: String,
}

pub(super) fn run(ctx: &SessionCtx, arguments: &Arguments, stop: &Stop) -> Outcome {
    let content = arguments.content.as_str();
    let workspace = Workspace::open(&ctx.workspace)?;
    let names = workspace.inside(&arguments.path)?;
    if content.len() > MOST {
        return Err(format!("The content is larger than {MOST} bytes. Write several files."));
    }
    let Some((name, parents)) = names.split_last() else {
        return Err("This is the workspace directory itself, not a file.".to_owned());
    };
    let (parent, made) = workspace.make_directory(parents)?;
    let replaced = match kind(&parent, name).map_err(|error| explain(error, &names))? {
        None => false,
        Some(FileType::RegularFile) => true,
        Some(FileType::Directory) => return Err(format!("{} is a directory.", show(&names))),
        Some(FileType::Symlink) => {
            return Err(format!("{} is a symbolic link; links are not followed.", show(&names)));
        }
        Some(_) => return Err(format!("{} is not a regular file.", show(&names))),
    };
    if !replace(&parent, name, content, stop).map_err(|error| format!("{}: {error}", show(&names)))? {
        return Err("Cancelled before anything was written.".to_owned());
    }
    Ok(json!({
        "path": show(&names),
        "bytes_written": content.len(),
        "replaced": replaced,
        "dirs_created": made,
    }))
}

/// `false`: stopped before the file was put in place.
pub(super) fn replace(parent: &OwnedFd, name: &OsStr, content: &str, stop: &Stop) -> std::io::Result<bool> {
    let temporary = temporary();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Mode::from_raw_mode(stat.st_mode & 0o777),
        Err(_) => Mode::from_raw_mode(0o644),
    };
    let mut file = File::from(rustix::fs::openat(parent, &temporary, flags, mode)?);
    let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() || stop.asked() {
        rustix::fs::unlinkat(parent, &temporary, AtFlags::empty())?;
        return written.map(|()| false);
    }
    rustix::fs::renameat(parent, &temporary, parent, name)?;
    rustix::fs::fsync(parent)?;
    Ok(true)
}

/// A name that no other call of this or an earlier process uses.
fn temporary() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let stamp = std::time::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos());
    format!(".petasos-{}-{stamp:x}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into()
}
