//! Which files may leave, and as what.
//!
//! A model names files, and what it reads may tell it which: so what an answer may carry is decided here, after
//! symbolic links are resolved, right before it is sent. Files come from the workspace, the cache and the folders that the
//! owner allows; from elsewhere only in a turn of the owner's. The descriptor that was judged is the one that is sent,
//! whatever lies at its path by then. Hard links are refused: their other name may lie anywhere. So are credentials,
//! wherever they lie. A file that stays here leaves a line in its place: nothing vanishes, and an answer
//! has the same number of parts whatever happens to its files. Of what may not be sent nobody learns whether it is there.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use petasos_agent::own_files::open_file;
use petasos_core::Capabilities;
use petasos_core::media::{self, Media, Sort};
use petasos_platforms::{File, Opened, Part, Show};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::credentials;

/// Never, unless a folder within them is allowed. `/run` is what `/var/run` is.
const SYSTEM: &[&str] =
    &["/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/run", "/var/log", "/var/lib", "/var/run"];
/// The same in the user's own folder.
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
/// Largest picture within an answer.
const LARGEST_INLINE: u64 = 5 << 20;
/// Longest name that is shown.
const SHOWN: usize = 80;

/// What the owner allows.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Our own folder: nothing of it leaves but what lies in `allowed`.
    pub home: PathBuf,
    /// The user's folder, which `~` stands for.
    pub user: Option<PathBuf>,
    /// Folders whose files may always be sent.
    pub allowed: Vec<PathBuf>,
    /// Outside of them the owner gets only what was written just now.
    pub strict: bool,
    /// Whose answer it is.
    pub reach: Reach,
}

/// How far an answer may reach for its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Into the allowed folders.
    #[default]
    Anyone,
    /// Also to the owner's other files.
    Owner,
}

/// As much of a file as shows a private key.
const START: usize = 1024;

/// In strict mode a file is new for this long.
const FRESH: Duration = Duration::from_secs(600);

/// Why a file stays here, in words for the chat.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Kept {
    #[error("it is not there")]
    Missing,
    #[error("it is not a file")]
    NoFile,
    #[error("it cannot be read")]
    Unreadable,
    #[error("files from there are not sent")]
    Denied,
    #[error("only new files and those of allowed folders are sent")]
    Old,
    #[error("it is a hard link; a copy of it can be sent")]
    Linked,
    #[error("it is empty")]
    Empty,
    #[error("it has {} MB, and {label} takes {} MB at most", size.div_ceil(1 << 20), most >> 20)]
    TooLarge { size: u64, most: u64, label: String },
    #[error("files cannot be sent here")]
    NoFiles,
    #[error("only pictures can be sent here")]
    NoPicture,
}

impl Policy {
    /// The same, with further folders whose files may be sent.
    pub(crate) fn with(&self, folders: Vec<PathBuf>) -> Self {
        let mut policy = self.clone();
        policy.allowed.extend(folders);
        policy
    }

    pub(super) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// One part for every file of the answer, in its order.
    pub(super) async fn parts(&self, media: &Media, to: &Capabilities) -> Vec<Part> {
        let mut parts = Vec::with_capacity(media.files.len());
        for written in &media.files {
            let (policy, path, to) = (self.clone(), written.clone(), to.clone());
            // A disk may be slow.
            let judged = petasos_runtime::blocking(move || policy.judge(&path, &to)).await;
            parts.push(match judged.unwrap_or(Err(Kept::Unreadable)) {
                Ok((path, opened)) => Part::file(file(&path, opened, media)),
                Err(kept) => notice(written, &kept.to_string()),
            });
        }
        parts
    }

    /// An answer with the pictures that it names in it, for readers who are sent nothing else. `None`: it names no files.
    pub(crate) async fn inline(&self, text: &str, to: &Capabilities) -> Option<String> {
        let media = media::extract(text);
        if media.files.is_empty() {
            return None;
        }
        let to = Capabilities { files: Some(LARGEST_INLINE), ..to.clone() };
        let mut said = vec![media.text];
        for written in media.files {
            let (policy, to) = (self.clone(), to.clone());
            // A disk may be slow.
            let judged = petasos_runtime::blocking(move || {
                let shown = policy.judge(&written, &to).and_then(|(_, opened)| picture(&opened));
                shown.unwrap_or_else(|kept| missing(&written, &kept.to_string()))
            });
            said.push(judged.await.unwrap_or_else(|_panicked| "📎 A file could not be read.".into()));
        }
        said.retain(|part| !part.is_empty());
        Some(said.join("\n\n"))
    }

    /// The file itself, if it may be sent.
    fn judge(&self, written: &str, to: &Capabilities) -> Result<(PathBuf, Opened), Kept> {
        let most = to.files.ok_or(Kept::NoFiles)?;
        let path = match (written.strip_prefix("~/"), &self.user) {
            (Some(rest), Some(user)) => user.join(rest),
            (Some(_), None) => return Err(Kept::Missing),
            (None, _) => PathBuf::from(written),
        };
        let path = self.resolve(&path)?;
        // Before anything is said about it: what may not be sent may not be asked about either, nor opened.
        let age = |about: &Metadata| about.modified().ok().and_then(|at| at.elapsed().ok());
        self.permit(&path, path.symlink_metadata().ok().as_ref().and_then(age))?;
        let opened = open(&path).map_err(|error| absent(&error))?;
        let about = opened.metadata().map_err(|error| absent(&error))?;
        if !about.is_file() {
            return Err(Kept::NoFile);
        }
        if about.nlink() > 1 {
            return Err(Kept::Linked);
        }
        let mut start = [0; START];
        let read = opened.read_at(&mut start, 0).map_err(|error| absent(&error))?;
        if credentials::begins_like_one(&start[..read]) {
            return Err(Kept::Denied);
        }
        match about.len() {
            0 => Err(Kept::Empty),
            size if size > most => Err(Kept::TooLarge { size, most, label: to.label.clone() }),
            _fits => Ok((path, opened)),
        }
    }

    /// Where it really is. One that is not there is judged by where it would be.
    fn resolve(&self, path: &Path) -> Result<PathBuf, Kept> {
        let error = match path.canonicalize() {
            Ok(path) => return Ok(path),
            Err(error) => error,
        };
        let real =
            |folder: &Path| Some((folder.canonicalize().ok()?, path.strip_prefix(folder).ok()?.to_owned()));
        if let Some((folder, rest)) = path.ancestors().skip(1).find_map(real) {
            self.permit(&folder.join(rest), None)?;
        }
        Err(absent(&error))
    }

    /// `age`: since it was last written, if that is known.
    fn permit(&self, path: &Path, age: Option<Duration>) -> Result<(), Kept> {
        if credentials::is_named_like_one(path) {
            return Err(Kept::Denied);
        }
        let allowed = self.allowed.iter().any(|folder| is_within(path, folder));
        if is_within(path, &self.home) {
            // Also where a whole disk is allowed: keys and conversations of ours are no attachments.
            let inside = self.allowed.iter().any(|folder| {
                is_within(path, folder) && is_within(folder, &self.home) && !is_within(&self.home, folder)
            });
            return if inside { Ok(()) } else { Err(Kept::Denied) };
        }
        if !allowed && self.reach == Reach::Anyone {
            return Err(Kept::Denied);
        }
        let system = SYSTEM.iter().any(|folder| self.closes(Path::new(folder), path));
        let private =
            self.user.iter().any(|user| PRIVATE.iter().any(|name| self.closes(&user.join(name), path)));
        if system || private {
            return Err(Kept::Denied);
        }
        if allowed {
            return Ok(());
        }
        if self.strict && age.is_none_or(|age| age > FRESH) {
            return Err(Kept::Old);
        }
        Ok(())
    }
}

impl Policy {
    /// Whether the path lies in this private folder, and nothing within the folder is allowed that contains it: who allows a
    /// whole disk or home has not thought of what is private there.
    fn closes(&self, private: &Path, path: &Path) -> bool {
        let opened = |folder: &PathBuf| is_within(path, folder) && is_within(folder, private);
        is_within(path, private) && !self.allowed.iter().any(opened)
    }
}

/// `folder` is as the owner wrote it: it may be a link itself.
fn is_within(path: &Path, folder: &Path) -> bool {
    if folder.as_os_str().is_empty() {
        return false;
    }
    path.starts_with(folder) || folder.canonicalize().is_ok_and(|folder| path.starts_with(folder))
}

/// `path` has been resolved, so whatever is a link on the way by now is not followed. Waits for nobody.
fn open(path: &Path) -> io::Result<Opened> {
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

fn absent(error: &io::Error) -> Kept {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Kept::Missing,
        _other => Kept::Unreadable,
    }
}

fn file(path: &Path, opened: Opened, media: &Media) -> File {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    let (mime, sort) = media::of_name(&name);
    let show = match sort {
        _any if media.document => Show::Document,
        Sort::Image if mime == "image/gif" => Show::Document,
        Sort::Image => Show::Photo,
        Sort::Audio if mime == "audio/ogg" && media.voice => Show::Voice,
        Sort::Audio if matches!(mime, "audio/mpeg" | "audio/mp4") => Show::Audio,
        Sort::Video if mime == "video/mp4" => Show::Video,
        Sort::Audio | Sort::Video | Sort::Document => Show::Document,
    };
    File { opened, name, mime, show }
}

/// A picture as Markdown that needs nothing else.
fn picture(opened: &Opened) -> Result<String, Kept> {
    let size = opened.metadata().map_err(|error| absent(&error))?.len().min(LARGEST_INLINE);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
    let mut at = 0;
    while at < bytes.len() {
        match opened.read_at(&mut bytes[at..], at as u64).map_err(|error| absent(&error))? {
            0 => break,
            read => at += read,
        }
    }
    bytes.truncate(at);
    let mime = media::image_type(&bytes).ok_or(Kept::NoPicture)?;
    Ok(format!("![image](data:{mime};base64,{})", STANDARD.encode(bytes)))
}

/// What stands in the place of a file that stays here.
pub(super) fn notice(written: &str, why: &str) -> Part {
    Part::plain(missing(written, why))
}

fn missing(written: &str, why: &str) -> String {
    let name = Path::new(written).file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    format!("📎 {name} was not sent: {why}.")
}

#[cfg(test)]
mod tests;
