//! Confines file access to one directory: the workspace, or for reading also the files sent in a session.
//!
//! Paths are resolved component by component from an open directory and no symbolic link is followed, so the
//! file that was checked is the one that is opened, even if the tree changes meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::files::protected;
use crate::tools::SessionCtx;

#[derive(Debug)]
pub(in crate::tools) struct Workspace {
    path: PathBuf,
    root: OwnedFd,
    /// Prefix of the paths that the model is shown; empty for the workspace.
    pub(in crate::tools) shown_as: PathBuf,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Workspace {
    pub(in crate::tools) fn open(path: &Path) -> Result<Self, String> {
        let unusable = || "The workspace directory cannot be used.".to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|_| unusable())?;
        let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|_| unusable())?;
        Ok(Self { path: path.to_owned(), root, shown_as: PathBuf::new() })
    }

    /// The directory in which `path` may be read: a folder of sent files if the path is in one, else the
    /// workspace.
    pub(in crate::tools) fn readable(ctx: &SessionCtx, path: &str) -> Result<Self, String> {
        let requested = Path::new(path);
        let sent = ctx.sent.iter().chain([&ctx.results]).find(|folder| requested.starts_with(folder));
        let Some(sent) = sent.filter(|_| !requested.starts_with(&ctx.workspace)) else {
            return Self::open(&ctx.workspace);
        };
        // The folder is missing as long as nothing was sent.
        let root = rustix::fs::openat(CWD, sent, DIRECTORY, Mode::empty())
            .map_err(|_| format!("{path} does not exist."))?;
        Ok(Self { path: sent.clone(), root, shown_as: sent.clone() })
    }

    /// The components of `path` below the root.
    pub(in crate::tools) fn components(&self, path: &str) -> Result<Vec<OsString>, String> {
        components(&self.path, path)
    }

    pub(in crate::tools) fn file(&self, names: &[OsString]) -> Result<File, String> {
        let Some((name, parents)) = names.split_last() else {
            return Err("This is the directory itself, not a file.".to_owned());
        };
        let parent = self.directory(parents)?;
        open_file(&parent, name).map_err(|error| describe_errno(error, names))
    }

    pub(in crate::tools) fn directory(&self, names: &[OsString]) -> Result<OwnedFd, String> {
        let mut at = self.root.try_clone().map_err(|error| error.to_string())?;
        for (index, name) in names.iter().enumerate() {
            at = open_directory(&at, name).map_err(|error| describe_errno(error, &names[..=index]))?;
        }
        Ok(at)
    }

    /// Like `directory`, but creates missing parts; the flag says whether any was created.
    pub(in crate::tools) fn make_directory(&self, names: &[OsString]) -> Result<(OwnedFd, bool), String> {
        let mut at = self.root.try_clone().map_err(|error| error.to_string())?;
        let mut made = false;
        for (index, name) in names.iter().enumerate() {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => made = true,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(describe_errno(error, &names[..=index])),
            }
            at = open_directory(&at, name).map_err(|error| describe_errno(error, &names[..=index]))?;
        }
        Ok((at, made))
    }
}

/// The components of `path` below `root`. Purely lexical.
pub(in crate::tools) fn components(root: &Path, path: &str) -> Result<Vec<OsString>, String> {
    if path.trim().is_empty() || path.contains('\0') {
        return Err("The path is empty or not valid.".to_owned());
    }
    let outside = || format!("{path} is outside the workspace. Give a path relative to the workspace.");
    let requested = Path::new(path);
    let relative = match requested.strip_prefix(root) {
        Ok(relative) => relative,
        Err(_) if requested.is_absolute() || path.starts_with('~') => return Err(outside()),
        Err(_) => requested,
    };
    let mut names = Vec::new();
    for component in relative.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::CurDir => {}
            Component::ParentDir => drop(names.pop().ok_or_else(outside)?),
            Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(names)
}

pub(in crate::tools) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Opens regular files only.
pub(in crate::tools) fn open_file(parent: &OwnedFd, name: &OsStr) -> Result<File, Errno> {
    let fd = protected::open_file(parent, name)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// The type of the entry at `name`; `None` if there is none.
pub(in crate::tools) fn kind(parent: &OwnedFd, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(in crate::tools) fn display_path(names: &[OsString]) -> String {
    names.iter().collect::<PathBuf>().display().to_string()
}

pub(in crate::tools) fn describe_errno(error: Errno, names: &[OsString]) -> String {
    let path = display_path(names);
    match error {
        Errno::NOENT => format!("{path} does not exist."),
        Errno::LOOP => format!("{path} is a symbolic link; links are not followed."),
        // Linux reports this for a symbolic link in place of a directory.
        Errno::NOTDIR => format!("{path} is not a directory (symbolic links are not followed)."),
        Errno::ISDIR => format!("{path} is a directory."),
        Errno::OPNOTSUPP | Errno::NXIO => format!("{path} is not a regular file."),
        Errno::ACCESS | Errno::PERM => format!("{path}: permission denied."),
        Errno::NOSPC | Errno::DQUOT => "The disk is full.".to_owned(),
        Errno::NAMETOOLONG => format!("{path}: the name is too long."),
        other => format!("{path}: {}", std::io::Error::from(other)),
    }
}
