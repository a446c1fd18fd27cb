//! The `write_file` tool: replaces a whole file atomically.
//!
//! The content is written to a temporary file, synced and renamed. A crash leaves the old file, and possibly
//! a `.petasos-*.tmp` beside it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::workspace::{Workspace, describe_errno, display_path, kind};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{CancelFlag, SessionCtx, ToolOutcome};

pub(in crate::tools) const MAX_BYTES: usize = 4 << 20;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "write_file",
        description: "Writes a text file of the workspace, replacing an existing one. Missing directories are created.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Writes,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(in crate::tools) struct WriteFileArguments {
    /// Path relative to the workspace
    path: String,
    /// Complete new content
    content: String,
}

pub(in crate::tools) fn run(
    ctx: &SessionCtx,
    arguments: &WriteFileArguments,
    cancel: &CancelFlag,
) -> ToolOutcome {
    let content = arguments.content.as_str();
    let workspace = Workspace::open(&ctx.workspace)?;
    let names = workspace.components(&arguments.path)?;
    if content.len() > MAX_BYTES {
        return Err(format!("The content is larger than {MAX_BYTES} bytes. Write several files."));
    }
    let Some((name, parents)) = names.split_last() else {
        return Err("This is the workspace directory itself, not a file.".to_owned());
    };
    let (parent, made) = workspace.make_directory(parents)?;
    let replaced = match kind(&parent, name).map_err(|error| describe_errno(error, &names))? {
        None => false,
        Some(FileType::RegularFile) => true,
        Some(FileType::Directory) => return Err(format!("{} is a directory.", display_path(&names))),
        Some(FileType::Symlink) => {
            return Err(format!("{} is a symbolic link; links are not followed.", display_path(&names)));
        }
        Some(_) => return Err(format!("{} is not a regular file.", display_path(&names))),
    };
    if !replace(&parent, name, content, cancel)
        .map_err(|error| format!("{}: {error}", display_path(&names)))?
    {
        return Err("Cancelled before anything was written.".to_owned());
    }
    Ok(json!({
        "path": display_path(&names),
        "bytes_written": content.len(),
        "replaced": replaced,
        "dirs_created": made,
    }))
}

/// `false` if cancelled before the rename.
pub(in crate::tools) fn replace(
    parent: &OwnedFd,
    name: &OsStr,
    content: &str,
    cancel: &CancelFlag,
) -> std::io::Result<bool> {
    let temporary = temporary();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Mode::from_raw_mode(stat.st_mode & 0o777),
        Err(_) => Mode::from_raw_mode(0o644),
    };
    let mut file = File::from(rustix::fs::openat(parent, &temporary, flags, mode)?);
    let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() || cancel.is_set() {
        rustix::fs::unlinkat(parent, &temporary, AtFlags::empty())?;
        return written.map(|()| false);
    }
    rustix::fs::renameat(parent, &temporary, parent, name)?;
    rustix::fs::fsync(parent)?;
    Ok(true)
}

/// A name that is unique across calls and processes.
fn temporary() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let stamp = std::time::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos());
    format!(".petasos-{}-{stamp:x}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into()
}
