//! Decides which files an answer may attach, and in which form.
//!
//! The model names the files, and prompt injection may choose them, so the check runs right before sending, after symbolic
//! links are resolved. Files come from the workspace, the cache and the folders that the owner allows; other files only in a turn
//! of the owner. The checked descriptor is the one that is sent, whatever lies at its path by then. Hard links are refused, since
//! their other name may lie anywhere, and so are credentials. A refused file leaves a line in the answer, so the number of parts
//! does not depend on the files. A refusal does not reveal whether a forbidden file exists.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use petasos_agent::protected_files::open_file;
use petasos_core::Capabilities;
use petasos_core::media::{self, ExtractedMedia, MediaKind};
use petasos_platforms::{MediaKind as SendKind, OpenFile, OutgoingFile, Part};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::credentials;
use crate::notices::files as notices;

/// System folders: closed unless a folder inside them is allowed. `/run` is the target of `/var/run`.
const SYSTEM: &[&str] =
    &["/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/run", "/var/log", "/var/lib", "/var/run"];
/// The same below the user's home.
const PRIVATE: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".config",
    ".azure",
    ".gcloud",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".vault-token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".terraform.d",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/fish",
    ".pki",
    ".mozilla",
    ".thunderbird",
    ".bash_history",
    ".zsh_history",
    ".histfile",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
];
const MAX_INLINE: u64 = 5 << 20;
const MAX_SHOWN_NAME: usize = 80;

#[derive(Debug, Clone, Default)]
pub struct AttachmentPolicy {
    /// The gateway's home: only its folders in `allowed` are open.
    pub home: PathBuf,
    /// The user's home folder (`~`).
    pub user: Option<PathBuf>,
    /// Folders whose files may be sent in every turn.
    pub allowed: Vec<PathBuf>,
    /// Outside `allowed`, the owner gets only recently written files.
    pub strict: bool,
    pub access: FileAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileAccess {
    /// Files in the allowed folders.
    #[default]
    AllowedFolders,
    /// Also the owner's other files.
    Owner,
}

const KEY_PREFIX: usize = 1024;

/// In strict mode a file counts as recent for this long.
const RECENT: Duration = Duration::from_secs(600);

/// Why a file is not sent. Shown in the chat.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum FileRefusal {
    #[error("{}", notices::MISSING)]
    Missing,
    #[error("{}", notices::NOT_A_FILE)]
    NoFile,
    #[error("{}", notices::UNREADABLE)]
    Unreadable,
    #[error("{}", notices::NOT_ALLOWED)]
    Denied,
    #[error("{}", notices::NOT_RECENT)]
    Old,
    #[error("{}", notices::HARD_LINK)]
    Linked,
    #[error("{}", notices::EMPTY)]
    Empty,
    #[error("{}", notices::too_large(size.div_ceil(1 << 20), most >> 20, label))]
    TooLarge { size: u64, most: u64, label: String },
    #[error("{}", notices::NO_FILES_HERE)]
    NoFiles,
    #[error("{}", notices::PICTURES_ONLY)]
    NoPicture,
}

impl AttachmentPolicy {
    pub(crate) fn with_folders(&self, folders: Vec<PathBuf>) -> Self {
        let mut policy = self.clone();
        policy.allowed.extend(folders);
        policy
    }

    pub(super) fn with_access(self, access: FileAccess) -> Self {
        Self { access, ..self }
    }

    /// One part per file, in the order of the answer.
    pub(super) async fn parts(&self, media: &ExtractedMedia, to: &Capabilities) -> Vec<Part> {
        let mut parts = Vec::with_capacity(media.files.len());
        for written in &media.files {
            let policy = self.clone();
            let path = written.clone();
            let to = to.clone();
            let checked = petasos_runtime::blocking(move || policy.open_checked(&path, &to)).await;
            parts.push(match checked.unwrap_or(Err(FileRefusal::Unreadable)) {
                Ok((path, opened)) => Part::file(describe_file(&path, opened, media)),
                Err(refusal) => refusal_notice(written, &refusal.to_string()),
            });
        }
        parts
    }

    /// The answer with its pictures embedded as data URLs, for API clients. `None`: it names no files.
    pub(crate) async fn inline(&self, text: &str, to: &Capabilities) -> Option<String> {
        let media = media::extract(text);
        if media.files.is_empty() {
            return None;
        }
        let to = Capabilities { files: Some(MAX_INLINE), ..to.clone() };
        let mut parts = vec![media.text];
        for written in media.files {
            let policy = self.clone();
            let to = to.clone();
            let checked = petasos_runtime::blocking(move || {
                let shown =
                    policy.open_checked(&written, &to).and_then(|(_, opened)| inline_picture(&opened));
                shown.unwrap_or_else(|refusal| refusal_line(&written, &refusal.to_string()))
            });
            parts.push(checked.await.unwrap_or_else(|_panicked| notices::UNREADABLE_PICTURE.into()));
        }
        parts.retain(|part| !part.is_empty());
        Some(parts.join("\n\n"))
    }

    /// Opens the file if it may be sent.
    fn open_checked(&self, written: &str, to: &Capabilities) -> Result<(PathBuf, OpenFile), FileRefusal> {
        let most = to.files.ok_or(FileRefusal::NoFiles)?;
        let path = match (written.strip_prefix("~/"), &self.user) {
            (Some(rest), Some(user)) => user.join(rest),
            (Some(_), None) => return Err(FileRefusal::Missing),
            (None, _) => PathBuf::from(written),
        };
        let path = self.resolve(&path)?;
        // Before opening: a forbidden path must not be probed.
        let age = |about: &Metadata| about.modified().ok().and_then(|at| at.elapsed().ok());
        self.check_path(&path, path.symlink_metadata().ok().as_ref().and_then(age))?;
        let opened = open(&path).map_err(|error| from_io_error(&error))?;
        let about = opened.metadata().map_err(|error| from_io_error(&error))?;
        if !about.is_file() {
            return Err(FileRefusal::NoFile);
        }
        if about.nlink() > 1 {
            return Err(FileRefusal::Linked);
        }
        let mut start = [0; KEY_PREFIX];
        let read = opened.read_at(&mut start, 0).map_err(|error| from_io_error(&error))?;
        if credentials::starts_like_private_key(&start[..read]) {
            return Err(FileRefusal::Denied);
        }
        match about.len() {
            0 => Err(FileRefusal::Empty),
            size if size > most => Err(FileRefusal::TooLarge { size, most, label: to.label.clone() }),
            _fits => Ok((path, opened)),
        }
    }

    /// Resolves links. A missing file is checked at the place where it would be.
    fn resolve(&self, path: &Path) -> Result<PathBuf, FileRefusal> {
        let error = match path.canonicalize() {
            Ok(path) => return Ok(path),
            Err(error) => error,
        };
        let real =
            |folder: &Path| Some((folder.canonicalize().ok()?, path.strip_prefix(folder).ok()?.to_owned()));
        if let Some((folder, rest)) = path.ancestors().skip(1).find_map(real) {
            self.check_path(&folder.join(rest), None)?;
        }
        Err(from_io_error(&error))
    }

    /// `age`: time since the last write, if known.
    fn check_path(&self, path: &Path, age: Option<Duration>) -> Result<(), FileRefusal> {
        if credentials::has_credential_name(path) {
            return Err(FileRefusal::Denied);
        }
        let allowed = self.allowed.iter().any(|folder| is_within(path, folder));
        if is_within(path, &self.home) {
            // Also when a whole disk is allowed: keys and conversations are no attachments.
            let inside = self.allowed.iter().any(|folder| {
                is_within(path, folder) && is_within(folder, &self.home) && !is_within(&self.home, folder)
            });
            return if inside { Ok(()) } else { Err(FileRefusal::Denied) };
        }
        if !allowed && self.access == FileAccess::AllowedFolders {
            return Err(FileRefusal::Denied);
        }
        let system = SYSTEM.iter().any(|folder| self.is_closed(Path::new(folder), path));
        let private =
            self.user.iter().any(|user| PRIVATE.iter().any(|name| self.is_closed(&user.join(name), path)));
        if system || private {
            return Err(FileRefusal::Denied);
        }
        if allowed {
            return Ok(());
        }
        if self.strict && age.is_none_or(|age| age > RECENT) {
            return Err(FileRefusal::Old);
        }
        Ok(())
    }
}

impl AttachmentPolicy {
    /// True if the path lies in this private folder and no allowed folder inside it contains the path. Allowing a whole disk does
    /// not open its private folders.
    fn is_closed(&self, private: &Path, path: &Path) -> bool {
        let opened = |folder: &PathBuf| is_within(path, folder) && is_within(folder, private);
        is_within(path, private) && !self.allowed.iter().any(opened)
    }
}

/// `folder` is taken from the settings, so it may itself be a link.
fn is_within(path: &Path, folder: &Path) -> bool {
    if folder.as_os_str().is_empty() {
        return false;
    }
    path.starts_with(folder) || folder.canonicalize().is_ok_and(|folder| path.starts_with(folder))
}

/// Opens a resolved path without following links and without blocking on special files.
fn open(path: &Path) -> io::Result<OpenFile> {
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", on_the_way, Mode::empty())?;
    let mut names = path.components().filter(|it| matches!(it, Component::Normal(_))).peekable();
    while let Some(name) = names.next() {
        at = match names.peek() {
            Some(_) => openat(&at, name.as_os_str(), on_the_way, Mode::empty())?,
            None => open_file(&at, name.as_os_str())?,
        };
    }
    Ok(std::fs::File::from(at).into())
}

fn from_io_error(error: &io::Error) -> FileRefusal {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileRefusal::Missing,
        _other => FileRefusal::Unreadable,
    }
}

fn describe_file(path: &Path, opened: OpenFile, media: &ExtractedMedia) -> OutgoingFile {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    let (mime, sort) = media::type_of_name(&name);
    let show = match sort {
        _any if media.document => SendKind::Document,
        MediaKind::Image if mime == "image/gif" => SendKind::Document,
        MediaKind::Image => SendKind::Photo,
        MediaKind::Audio if mime == "audio/ogg" && media.voice => SendKind::Voice,
        MediaKind::Audio if matches!(mime, "audio/mpeg" | "audio/mp4") => SendKind::Audio,
        MediaKind::Video if mime == "video/mp4" => SendKind::Video,
        MediaKind::Audio | MediaKind::Video | MediaKind::Document => SendKind::Document,
    };
    OutgoingFile { opened, name, mime, show }
}

/// A picture as Markdown with a data URL.
fn inline_picture(opened: &OpenFile) -> Result<String, FileRefusal> {
    let size = opened.metadata().map_err(|error| from_io_error(&error))?.len().min(MAX_INLINE);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
    let mut at = 0;
    while at < bytes.len() {
        match opened.read_at(&mut bytes[at..], at as u64).map_err(|error| from_io_error(&error))? {
            0 => break,
            read => at += read,
        }
    }
    bytes.truncate(at);
    let mime = media::image_type(&bytes).ok_or(FileRefusal::NoPicture)?;
    Ok(format!("![image](data:{mime};base64,{})", STANDARD.encode(bytes)))
}

/// The line that replaces a file that was not sent.
pub(super) fn refusal_notice(written: &str, why: &str) -> Part {
    Part::plain(refusal_line(written, why))
}

fn refusal_line(written: &str, why: &str) -> String {
    let name = Path::new(written).file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_NAME).collect();
    notices::not_sent(&name, why)
}

#[cfg(test)]
mod tests;
