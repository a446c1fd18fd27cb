//! Downloads the files of inbound messages into the cache before the messages are admitted.
//!
//! Owns `<home>/cache`. Every session has its own folders there, and only its own answers and tools may read them. A file is named
//! after its message and its position, so a repeated download replaces it. It is written beside its final path, synced and renamed,
//! so it is complete or absent. The result is stored in the inbox before the message is admitted: a failed download neither blocks
//! nor loses the message.

use std::collections::HashSet;
use std::error::Error as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use petasos_core::media::{self, MediaKind};
use petasos_core::message::Attachment;
use petasos_core::text::hex;
use petasos_core::{Inbound, InboxId, Platform, SessionKey, Source};
use petasos_platforms::download::{self, Error};
use petasos_platforms::{Adapter, Fetched};
use tokio::sync::Semaphore;

use crate::clock;
use crate::notices::files as notices;
use crate::runtime::fault_injection::{PlantedBug, planted};

/// Concurrent downloads, over all chats.
const MAX_CONCURRENT: usize = 4;
/// Wait before the second attempt; it doubles up to `MAX_RETRY_WAIT`.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(20);
/// Files downloaded per message; the others are only named.
const MAX_FILES: usize = 20;
/// Younger files are kept even above the size limit: their message may not be committed yet.
const MIN_AGE: Duration = Duration::from_secs(600);
/// Depth of the cache: media kind, then session.
const FOLDER_DEPTH: u32 = 2;
const FOLDERS: [&str; 4] = ["images", "audio", "videos", "documents"];

#[derive(Debug, Clone)]
pub struct DownloadSettings {
    /// Largest file in bytes; `None`: unlimited.
    pub max_file_bytes: Option<u64>,
    /// Cache size in bytes above which the oldest files are deleted; `None`: unlimited.
    pub max_cache_bytes: Option<u64>,
    /// Age at which files that no open message needs are deleted.
    pub retention: Duration,
    /// How long a failing download is retried. Its chat waits meanwhile.
    pub retry_for: Duration,
}

impl Default for DownloadSettings {
    fn default() -> Self {
        Self {
            max_file_bytes: Some(128 << 20),
            max_cache_bytes: Some(2 << 30),
            retention: Duration::from_secs(24 * 3600),
            retry_for: Duration::from_secs(180),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Downloader {
    cache: PathBuf,
    settings: DownloadSettings,
    permits: Semaphore,
}

impl Downloader {
    pub(crate) fn new(home: &Path, settings: DownloadSettings) -> Self {
        Self { cache: home.join(media::CACHE_FOLDER), settings, permits: Semaphore::new(MAX_CONCURRENT) }
    }

    pub(crate) fn wants(inbound: &Inbound) -> bool {
        inbound.attachments.iter().any(Attachment::needs_download)
    }

    /// Downloads the message's files and records the result in it. Without an adapter only files of API clients can be downloaded,
    /// which are named by URL.
    pub(crate) async fn fetch(
        &self,
        adapter: Option<&Adapter>,
        key: &SessionKey,
        id: InboxId,
        mut inbound: Inbound,
    ) -> Inbound {
        let source = inbound.source.clone();
        let session_folder = session_folder_name(key);
        for (index, attachment) in inbound.attachments.iter_mut().enumerate() {
            if !attachment.needs_download() {
                continue;
            }
            let fetched = match adapter {
                _ if index >= MAX_FILES => Err(notices::TOO_MANY.to_owned()),
                None if source.platform != Platform::API_SERVER => Err(notices::NO_DOWNLOAD_HERE.to_owned()),
                adapter => {
                    let stem = format!("{id}-{index}");
                    self.fetch_one(adapter, &source, attachment, &session_folder, &stem).await
                }
            };
            if attachment.reference.starts_with(download::DATA_SCHEME) {
                // Inline data: it is in the cache now, or unusable.
                download::DATA_SCHEME.clone_into(&mut attachment.reference);
            }
            match fetched {
                Ok(StoredFile { path, mime, size }) => {
                    attachment.file = Some(path.to_string_lossy().into_owned());
                    attachment.mime = Some(mime);
                    attachment.size = Some(size);
                }
                Err(reason) => attachment.error = Some(reason),
            }
        }
        inbound
    }

    async fn fetch_one(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        session_folder: &str,
        stem: &str,
    ) -> Result<StoredFile, String> {
        let part = self.cache.join(format!(".{stem}.part"));
        let stored = match self.fetch_with_retry(adapter, source, attachment, &part).await {
            Ok(fetched) => self.store(attachment, &fetched, session_folder, stem, &part).await,
            Err(error) => Err(download_error(source, &error)),
        };
        if stored.is_err() {
            // May not exist.
            let _ = disk(move || std::fs::remove_file(part)).await;
        }
        stored
    }

    /// Retries transient errors; the permit is released between two attempts.
    async fn fetch_with_retry(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        part: &Path,
    ) -> Result<Fetched, Error> {
        let until = clock::monotonic() + self.settings.retry_for;
        let mut pause = FIRST_RETRY;
        loop {
            // Never closed.
            let permit = self.permits.acquire().await;
            let error = match self.attempt(adapter, source, attachment, part).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            drop(permit);
            let wait = error.after().unwrap_or_default().max(pause);
            if !error.is_transient() || wait > until.saturating_duration_since(clock::monotonic()) {
                return Err(error);
            }
            tracing::debug!(platform = %source.platform, %error, "retrying a download");
            clock::sleep(wait).await;
            pause = MAX_RETRY_WAIT.min(pause * 2);
        }
    }

    async fn attempt(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        part: &Path,
    ) -> Result<Fetched, Error> {
        create_private_folder(&self.cache).await?;
        let path = part.to_owned();
        let opened = disk(move || {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).open(path)
        });
        let mut file = tokio::fs::File::from_std(opened.await?);
        let most = self.settings.max_file_bytes.unwrap_or(u64::MAX);
        let fetched = match adapter {
            Some(adapter) => adapter.fetch(source, attachment, most, &mut file).await?,
            None => download::fetch_url(&attachment.reference, most, &mut file).await?,
        };
        let file = file.into_std().await;
        if !planted(PlantedBug::UnsyncedDownloads) {
            disk(move || file.sync_all()).await?;
        }
        Ok(fetched)
    }

    /// Moves a complete file to its final path. A file sent as a photo must be an image.
    async fn store(
        &self,
        attachment: &Attachment,
        fetched: &Fetched,
        session_folder: &str,
        stem: &str,
        part: &Path,
    ) -> Result<StoredFile, String> {
        let (mime, sort, extension) = classify(attachment, fetched)?;
        let [images, audio, videos, documents] = FOLDERS;
        let all = self.cache.join(match sort {
            MediaKind::Image => images,
            MediaKind::Audio => audio,
            MediaKind::Video => videos,
            MediaKind::Document => documents,
        });
        let within = all.join(session_folder);
        let path = within.join(format!("{stem}.{extension}"));
        let place = async || -> io::Result<()> {
            create_private_folder(&all).await?;
            create_private_folder(&within).await?;
            let part = part.to_owned();
            let path = path.clone();
            let within = within.clone();
            disk(move || {
                std::fs::rename(part, path)?;
                sync_folders(&within)
            })
            .await
        };
        let placed = match place().await {
            // The cleanup has just removed the empty folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => place().await,
            placed => placed,
        };
        placed.map_err(|error| {
            tracing::warn!(%error, "cannot move a downloaded file into the cache");
            Error::Disk(error).to_string()
        })?;
        Ok(StoredFile { path, mime, size: fetched.size })
    }

    /// Deletes files that are too old, and the oldest of the others while the cache is too large. `referred`: files of open messages,
    /// which are kept.
    pub(crate) fn clean(&self, referred: &HashSet<PathBuf>) -> io::Result<usize> {
        let mut found = vec![];
        collect_files(&self.cache, FOLDER_DEPTH, self.settings.retention, &mut found)?;
        found.sort_by_key(|it| it.written);
        let mut total: u64 = found.iter().map(|it| it.size).sum();
        let mut gone = 0;
        for CachedFile { path, written, size } in found {
            let age = written.elapsed().unwrap_or_default();
            let too_much = self.settings.max_cache_bytes.is_some_and(|most| total > most) && age > MIN_AGE;
            if (age > self.settings.retention || too_much) && !referred.contains(&path) {
                ignore_missing(std::fs::remove_file(&path))?;
                total = total.saturating_sub(size);
                gone += 1;
            }
        }
        Ok(gone)
    }
}

/// The download folders of one session.
pub(crate) fn session_folders(home: &Path, key: &SessionKey) -> Vec<PathBuf> {
    let cache = home.join(media::CACHE_FOLDER);
    let session_folder = session_folder_name(key);
    FOLDERS.map(|sort| cache.join(sort).join(&session_folder)).into()
}

/// The folder of a session's tool results that are too large for the model.
pub(crate) fn results_folder(home: &Path, key: &SessionKey) -> PathBuf {
    home.join(media::CACHE_FOLDER).join("results").join(session_folder_name(key))
}

/// A folder name that is safe for any key.
fn session_folder_name(key: &SessionKey) -> String {
    let digest = digest::digest(&digest::SHA256, key.0.as_bytes());
    hex(&digest.as_ref()[..16])
}

fn download_error(source: &Source, error: &Error) -> String {
    let cause = error.source().map(tracing::field::display);
    tracing::warn!(platform = %source.platform, %error, cause, "cannot download a file");
    error.to_string()
}

struct CachedFile {
    path: PathBuf,
    written: SystemTime,
    size: u64,
}

/// `None`: not found.
fn ignore_missing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Collects files recursively. Removes folders that have been empty for longer than `retention`.
fn collect_files(
    folder: &Path,
    depth: u32,
    retention: Duration,
    found: &mut Vec<CachedFile>,
) -> io::Result<()> {
    let Some(entries) = ignore_missing(std::fs::read_dir(folder))? else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let Some(about) = ignore_missing(path.symlink_metadata())? else { continue };
        let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if about.is_file() {
            found.push(CachedFile { path, written, size: about.len() });
        } else if about.is_dir() && depth > 0 {
            collect_files(&path, depth - 1, retention, found)?;
            if written.elapsed().is_ok_and(|age| age > retention) {
                // Fails unless the folder is empty.
                let _ = std::fs::remove_dir(&path);
            }
        }
    }
    Ok(())
}

struct StoredFile {
    path: PathBuf,
    mime: String,
    size: u64,
}

async fn create_private_folder(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    disk(move || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
    })
    .await
}

/// Syncs the folder of a session and those above it up to the home: any of them may be new.
fn sync_folders(folder: &Path) -> io::Result<()> {
    let levels = 2 + FOLDER_DEPTH as usize;
    folder.ancestors().take(levels).try_for_each(|folder| std::fs::File::open(folder)?.sync_all())
}

/// Blocking work on the disk.
async fn disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    petasos_runtime::blocking(work).await.map_err(|_panicked| io::Error::from(io::ErrorKind::Other))?
}

/// MIME type, kind and extension. Takes nothing else from the sender's file name.
fn classify(attachment: &Attachment, fetched: &Fetched) -> Result<(String, MediaKind, String), String> {
    if fetched.size == 0 {
        return Err(notices::EMPTY.to_owned());
    }
    if let Some(mime) = media::image_type(&fetched.head) {
        let extension = media::extension_for(mime).map_or("bin", |(extension, _)| extension);
        return Ok((mime.to_owned(), MediaKind::Image, extension.to_owned()));
    }
    if attachment.kind == "photo" {
        return Err(notices::NO_PICTURE.to_owned());
    }
    let name = attachment.name.as_deref().unwrap_or_default();
    let declared = attachment.mime.as_deref().or(fetched.mime.as_deref()).unwrap_or_default();
    let (by_name, name_sort) = media::type_of_name(name);
    let known = media::extension_for(declared).filter(|(_, sort)| *sort != MediaKind::Image);
    if let Some((extension, sort)) = known {
        return Ok((declared.to_owned(), sort, extension.to_owned()));
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let plain = (1..=8).contains(&extension.len()) && extension.bytes().all(|c| c.is_ascii_alphanumeric());
    let extension = if plain { extension.to_ascii_lowercase() } else { "bin".to_owned() };
    let mime = if declared.is_empty() { by_name.to_owned() } else { declared.to_owned() };
    let sort = if name_sort == MediaKind::Image { MediaKind::Document } else { name_sort };
    Ok((mime, sort, extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[track_caller]
    fn check(kind: &str, name: &str, mime: &str, head: &[u8], want: Result<(&str, MediaKind, &str), &str>) {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let attachment =
            Attachment { kind: kind.into(), name: some(name), mime: some(mime), ..Attachment::default() };
        let fetched = Fetched { size: head.len() as u64, mime: None, head: head.to_vec() };
        let got = classify(&attachment, &fetched);
        let want = want.map(|(mime, sort, end)| (mime.to_owned(), sort, end.to_owned()));
        assert_eq!(got, want.map_err(str::to_owned), "{kind} {name} {mime}");
    }

    #[test]
    fn classifies_a_file_by_its_bytes_before_its_name() {
        let no_picture = Err(notices::NO_PICTURE);
        check("photo", "", "", PNG, Ok(("image/png", MediaKind::Image, "png")));
        check(
            "document",
            "a.exe",
            "application/x-msdownload",
            PNG,
            Ok(("image/png", MediaKind::Image, "png")),
        );
        check("photo", "a.png", "image/png", b"<html>", no_picture);
        check("voice", "", "audio/ogg", b"OggS", Ok(("audio/ogg", MediaKind::Audio, "ogg")));
        check("document", "a.pdf", "", b"%PDF", Ok(("application/pdf", MediaKind::Document, "pdf")));
        check(
            "document",
            "a.svg",
            "image/svg+xml",
            b"<svg>",
            Ok(("image/svg+xml", MediaKind::Document, "svg")),
        );
        check("document", "../../x", "", b"?", Ok(("application/octet-stream", MediaKind::Document, "bin")));
        check("document", "a.b/../c", "", b"?", Ok(("application/octet-stream", MediaKind::Document, "bin")));
        check("document", "a.txt", "", b"", Err(notices::EMPTY));
    }

    fn cache(home: &Path, files: &[(&str, Duration)]) {
        for (name, age) in files {
            let path = home.join("cache").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, PNG).expect("written");
            let file = std::fs::File::options().write(true).open(&path).expect("open");
            file.set_modified(clock::file_time() - *age).expect("a moment");
        }
    }

    #[track_caller]
    fn left(home: &Path, files: &[(&str, Duration)], want: &[bool]) {
        let there: Vec<bool> = files.iter().map(|(name, _)| home.join("cache").join(name).exists()).collect();
        assert_eq!(there, want, "{files:?}");
    }

    #[test]
    fn deletes_old_files_that_no_open_message_needs() {
        let home = tempfile::tempdir().expect("a home");
        let retention = Duration::from_secs(3 * 24 * 3600);
        let downloader =
            Downloader::new(home.path(), DownloadSettings { retention, ..DownloadSettings::default() });
        let old = retention + Duration::from_secs(60);
        let files = [
            ("images/a/1-0.png", old),
            ("images/b/2-0.png", old),
            ("images/a/3-0.png", retention - Duration::from_secs(60)),
        ];
        cache(home.path(), &files);
        let referred = HashSet::from([home.path().join("cache/images/b/2-0.png")]);
        assert_eq!(downloader.clean(&referred).expect("cleaned"), 1);
        left(home.path(), &files, &[false, true, true]);
        let nowhere = Downloader::new(&home.path().join("none"), DownloadSettings::default());
        assert_eq!(nowhere.clean(&referred).expect("nothing there"), 0);
    }

    #[test]
    fn deletes_oldest_files_above_the_cache_limit() {
        let home = tempfile::tempdir().expect("a home");
        let most = Some(PNG.len() as u64 * 3);
        let downloader = Downloader::new(
            home.path(),
            DownloadSettings { max_cache_bytes: most, ..DownloadSettings::default() },
        );
        let hours = |count: u64| Duration::from_secs(3600 * count);
        let files = [
            ("images/a/1-0.png", hours(5)),
            ("audio/a/2-0.ogg", hours(4)),
            ("documents/b/3-0.pdf", hours(3)),
            ("videos/b/4-0.mp4", hours(2)),
            ("images/b/5-0.png", Duration::ZERO),
        ];
        cache(home.path(), &files);
        let referred = HashSet::from([home.path().join("cache/images/a/1-0.png")]);
        assert_eq!(downloader.clean(&referred).expect("cleaned"), 2);
        left(home.path(), &files, &[true, false, false, true, true]);
    }

    #[test]
    fn every_session_has_its_own_folders() {
        let of = |key: &str| session_folders(Path::new("/h"), &SessionKey(key.into()));
        let one = of("agent:main:telegram:dm:7");
        let other = of("agent:main:telegram:dm:../7");
        assert!(one.iter().all(|folder| !other.contains(folder)) && one.len() == 4);
        assert!(other.iter().all(|folder| folder.components().count() == 5), "{other:?}");
    }
}
