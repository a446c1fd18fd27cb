//! Files under one directory, and nothing else: the workspace, or for who only reads, what people sent.
//!
//! Paths are walked component by component from an open directory, and no symbolic link is followed on
//! the way: what the check saw is what gets opened, whatever happens to the tree meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::SessionCtx;
use crate::own_files;

#[derive(Debug)]
pub(super) struct Workspace {
    path: PathBuf,
    root: OwnedFd,
    /// How paths begin that the model is shown: nothing for those of the workspace, which it names relative to it.
    pub(super) shown_as: PathBuf,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Workspace {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let unusable = || "The workspace directory cannot be used.".to_owned();
        std::fs::create_dir_all(path).map_err(|_| unusable())?;
        let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|_| unusable())?;
        Ok(Self { path: path.to_owned(), root, shown_as: PathBuf::new() })
    }

    /// Where `path` may be read: among the files that people sent in this session if it says so, else in the workspace.
    pub(super) fn readable(ctx: &SessionCtx, path: &str) -> Result<Self, String> {
        let asked = Path::new(path);
        let sent = ctx.sent.iter().chain([&ctx.results]).find(|folder| asked.starts_with(folder));
        let Some(sent) = sent.filter(|_| !asked.starts_with(&ctx.workspace)) else {
            return Self::open(&ctx.workspace);
        };
        // Nobody has sent anything as long as it is missing.
        let root = rustix::fs::openat(CWD, sent, DIRECTORY, Mode::empty())
            .map_err(|_| format!("{path} does not exist."))?;
        Ok(Self { path: sent.clone(), root, shown_as: sent.clone() })
    }

    /// The components of `path` below the root.
    pub(super) fn inside(&self, path: &str) -> Result<Vec<OsString>, String> {
        inside(&self.path, path)
    }

    /// An existing regular file.
    pub(super) fn file(&self, names: &[OsString]) -> Result<File, String> {
        let Some((name, parents)) = names.split_last() else {
            return Err("This is the directory itself, not a file.".to_owned());
        };
        let parent = self.directory(parents)?;
        open_file(&parent, name).map_err(|error| explain(error, names))
    }

    pub(super) fn directory(&self, names: &[OsString]) -> Result<OwnedFd, String> {
        let mut at = self.root.try_clone().map_err(|error| error.to_string())?;
        for (index, name) in names.iter().enumerate() {
            at = open_directory(&at, name).map_err(|error| explain(error, &names[..=index]))?;
        }
        Ok(at)
    }

    /// Like `directory`, making what is missing. Also says whether it made anything.
    pub(super) fn make_directory(&self, names: &[OsString]) -> Result<(OwnedFd, bool), String> {
        let mut at = self.root.try_clone().map_err(|error| error.to_string())?;
        let mut made = false;
        for (index, name) in names.iter().enumerate() {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => made = true,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(explain(error, &names[..=index])),
            }
            at = open_directory(&at, name).map_err(|error| explain(error, &names[..=index]))?;
        }
        Ok((at, made))
    }
}

/// The components of `path` below `root`. Looks at nothing but the names.
pub(super) fn inside(root: &Path, path: &str) -> Result<Vec<OsString>, String> {
    if path.trim().is_empty() || path.contains('\0') {
        return Err("The path is empty or not valid.".to_owned());
    }
    let outside = || format!("{path} is outside the workspace. Give a path relative to the workspace.");
    let asked = Path::new(path);
    let relative = match asked.strip_prefix(root) {
        Ok(relative) => relative,
        Err(_) if asked.is_absolute() || path.starts_with('~') => return Err(outside()),
        Err(_) => asked,
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

pub(super) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Takes regular files only.
pub(super) fn open_file(parent: &OwnedFd, name: &OsStr) -> Result<File, Errno> {
    let fd = own_files::open_file(parent, name)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// What stands at `name` now; `None`: nothing.
pub(super) fn kind(parent: &OwnedFd, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn show(names: &[OsString]) -> String {
    names.iter().collect::<PathBuf>().display().to_string()
}

pub(super) fn explain(error: Errno, names: &[OsString]) -> String {
    let path = show(names);
    match error {
        Errno::NOENT => format!("{path} does not exist."),
        Errno::LOOP => format!("{path} is a symbolic link; links are not followed."),
        // Asking for a directory and finding a link gives this one on Linux.
        Errno::NOTDIR => format!("{path} is not a directory (symbolic links are not followed)."),
        Errno::ISDIR => format!("{path} is a directory."),
        Errno::OPNOTSUPP | Errno::NXIO => format!("{path} is not a regular file."),
        Errno::ACCESS | Errno::PERM => format!("{path}: permission denied."),
        Errno::NOSPC | Errno::DQUOT => "The disk is full.".to_owned(),
        Errno::NAMETOOLONG => format!("{path}: the name is too long."),
        other => format!("{path}: {}", std::io::Error::from(other)),
    }
}
