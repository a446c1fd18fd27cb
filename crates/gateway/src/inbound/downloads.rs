//! Files that people send: fetched into the cache before their message is let in.
//!
//! Owns `<home>/cache`. Every session has its own folders in it, and only its own answers and tools reach them: what
//! one person sends is not another's to have. A file is named after its message and its place in it, so fetching it
//! again after a crash replaces it; it is written beside its place, synced and renamed, so it is there whole or not at
//! all. What became of it is kept in the inbox before the message is let in: a message never waits for a file for
//! ever, and never gets lost with one.

use std::collections::HashSet;
use std::error::Error as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use petasos_core::media::{self, Sort};
use petasos_core::message::Attachment;
use petasos_core::{Inbound, InboxId, Platform, SessionKey, Source};
use petasos_platforms::download::{self, Error};
use petasos_platforms::{Adapter, Fetched};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Files under way at the same time, over all chats.
const HANDS: usize = 4;
/// The pause before the second try; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// Files of one message that are fetched; the rest is named.
const MOST_FILES: usize = 20;
/// One that is younger stays even if there is too much: its message may not be on disk yet.
const NEW: Duration = Duration::from_secs(600);
/// Folders below the cache: what it is, and whose it is.
const DEPTH: u32 = 2;
const SORTS: [&str; 4] = ["images", "audio", "videos", "documents"];

/// How files are fetched that people send.
#[derive(Debug, Clone)]
pub struct Inward {
    /// Largest file, in bytes; `None`: any.
    pub most: Option<u64>,
    /// What they may take together before the oldest go; `None`: anything.
    pub total: Option<u64>,
    /// Received files that no message waits for are deleted at this age.
    pub kept: Duration,
    /// How long one is tried for while its server is out of luck. Its chat waits meanwhile.
    pub patience: Duration,
}

impl Default for Inward {
    fn default() -> Self {
        Self {
            most: Some(128 << 20),
            total: Some(2 << 30),
            kept: Duration::from_secs(24 * 3600),
            patience: Duration::from_secs(180),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Fetcher {
    cache: PathBuf,
    inward: Inward,
    hands: Semaphore,
}

impl Fetcher {
    pub(crate) fn new(home: &Path, inward: Inward) -> Self {
        Self { cache: home.join(media::CACHE), inward, hands: Semaphore::new(HANDS) }
    }

    pub(crate) fn wants(inbound: &Inbound) -> bool {
        inbound.attachments.iter().any(Attachment::is_wanted)
    }

    /// The message with what became of its files. Without an adapter only programs' files can be had, which are named by
    /// their addresses.
    pub(crate) async fn fetch(
        &self,
        adapter: Option<&Adapter>,
        key: &SessionKey,
        id: InboxId,
        mut inbound: Inbound,
    ) -> Inbound {
        let (source, whose) = (inbound.source.clone(), whose(key));
        for (index, attachment) in inbound.attachments.iter_mut().enumerate() {
            if !attachment.is_wanted() {
                continue;
            }
            let fetched = match adapter {
                _ if index >= MOST_FILES => Err("there are too many files in one message".to_owned()),
                None if source.platform != Platform::API_SERVER => {
                    Err("files cannot be read from here".to_owned())
                }
                adapter => {
                    let stem = format!("{id}-{index}");
                    self.one(adapter, &source, attachment, &whose, &stem).await
                }
            };
            if attachment.reference.starts_with(download::DATA) {
                // It lies in the cache now, or is of no use.
                download::DATA.clone_into(&mut attachment.reference);
            }
            match fetched {
                Ok(Kept { path, mime, size }) => {
                    attachment.file = Some(path.to_string_lossy().into_owned());
                    (attachment.mime, attachment.size) = (Some(mime), Some(size));
                }
                Err(trouble) => attachment.trouble = Some(trouble),
            }
        }
        inbound
    }

    async fn one(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        whose: &str,
        stem: &str,
    ) -> Result<Kept, String> {
        let part = self.cache.join(format!(".{stem}.part"));
        let kept = match self.persist(adapter, source, attachment, &part).await {
            Ok(fetched) => self.keep(attachment, &fetched, whose, stem, &part).await,
            Err(error) => Err(not_fetched(source, &error)),
        };
        if kept.is_err() {
            // Gone already, if it was never made.
            let _ = disk(move || std::fs::remove_file(part)).await;
        }
        kept
    }

    /// Tries for as long as its server may only be out of luck; others have a go between two tries.
    async fn persist(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        part: &Path,
    ) -> Result<Fetched, Error> {
        let until = Instant::now() + self.inward.patience;
        let mut pause = PAUSE;
        loop {
            // Never closed.
            let hand = self.hands.acquire().await;
            let error = match self.attempt(adapter, source, attachment, part).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            drop(hand);
            let wait = error.after().unwrap_or_default().max(pause);
            if !error.is_passing() || wait > until.saturating_duration_since(Instant::now()) {
                return Err(error);
            }
            tracing::debug!(platform = %source.platform, %error, "a file is fetched again");
            tokio::time::sleep(wait).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn attempt(
        &self,
        adapter: Option<&Adapter>,
        source: &Source,
        attachment: &Attachment,
        part: &Path,
    ) -> Result<Fetched, Error> {
        folder(&self.cache).await?;
        let path = part.to_owned();
        let opened = disk(move || {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).open(path)
        });
        let mut file = tokio::fs::File::from_std(opened.await?);
        let most = self.inward.most.unwrap_or(u64::MAX);
        let fetched = match adapter {
            Some(adapter) => adapter.fetch(source, attachment, most, &mut file).await?,
            None => download::named(&attachment.reference, most, &mut file).await?,
        };
        let file = file.into_std().await;
        disk(move || file.sync_all()).await?;
        Ok(fetched)
    }

    /// Puts a whole file into its place. What claims to be a picture must be one.
    async fn keep(
        &self,
        attachment: &Attachment,
        fetched: &Fetched,
        whose: &str,
        stem: &str,
        part: &Path,
    ) -> Result<Kept, String> {
        let (mime, sort, extension) = sort(attachment, fetched)?;
        let [images, audio, videos, documents] = SORTS;
        let all = self.cache.join(match sort {
            Sort::Image => images,
            Sort::Audio => audio,
            Sort::Video => videos,
            Sort::Document => documents,
        });
        let within = all.join(whose);
        let path = within.join(format!("{stem}.{extension}"));
        let place = async || -> io::Result<()> {
            folder(&all).await?;
            folder(&within).await?;
            let (part, path, within, all) = (part.to_owned(), path.clone(), within.clone(), all.clone());
            disk(move || {
                std::fs::rename(part, path)?;
                std::fs::File::open(within)?.sync_all()?;
                std::fs::File::open(all)?.sync_all()
            })
            .await
        };
        let placed = match place().await {
            // The folder was empty and has just been cleared away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => place().await,
            placed => placed,
        };
        placed.map_err(|error| {
            tracing::warn!(%error, "a file that somebody sent could not be put into its place");
            Error::Disk(error).to_string()
        })?;
        Ok(Kept { path, mime, size: fetched.size })
    }

    /// Takes away what is old, and of the rest the oldest if there is too much. `referred`: files of messages without
    /// an outcome, which stay.
    pub(crate) fn clean(&self, referred: &HashSet<PathBuf>) -> io::Result<usize> {
        let mut found = vec![];
        look_through(&self.cache, DEPTH, self.inward.kept, &mut found)?;
        found.sort_by_key(|it| it.written);
        let mut total: u64 = found.iter().map(|it| it.size).sum();
        let mut gone = 0;
        for Found { path, written, size } in found {
            let age = written.elapsed().unwrap_or_default();
            let too_much = self.inward.total.is_some_and(|most| total > most) && age > NEW;
            if (age > self.inward.kept || too_much) && !referred.contains(&path) {
                there(std::fs::remove_file(&path))?;
                total = total.saturating_sub(size);
                gone += 1;
            }
        }
        Ok(gone)
    }
}

/// The folders of the files that were sent in one session.
pub(crate) fn folders(home: &Path, key: &SessionKey) -> Vec<PathBuf> {
    let (cache, whose) = (home.join(media::CACHE), whose(key));
    SORTS.map(|sort| cache.join(sort).join(&whose)).into()
}

/// The folder of the results of one session that were too large for the model.
pub(crate) fn results(home: &Path, key: &SessionKey) -> PathBuf {
    home.join(media::CACHE).join("results").join(whose(key))
}

/// A name for a session's folders, whatever its key is made of.
fn whose(key: &SessionKey) -> String {
    let digest = digest::digest(&digest::SHA256, key.0.as_bytes());
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn not_fetched(source: &Source, error: &Error) -> String {
    let cause = error.source().map(tracing::field::display);
    tracing::warn!(platform = %source.platform, %error, cause, "a file that somebody sent could not be fetched");
    error.to_string()
}

struct Found {
    path: PathBuf,
    written: SystemTime,
    size: u64,
}

/// `None`: it has gone meanwhile.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files of a folder and of those below it. Folders that have been empty for long go.
fn look_through(folder: &Path, depth: u32, kept: Duration, found: &mut Vec<Found>) -> io::Result<()> {
    let Some(entries) = there(std::fs::read_dir(folder))? else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let Some(about) = there(path.symlink_metadata())? else { continue };
        let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if about.is_file() {
            found.push(Found { path, written, size: about.len() });
        } else if about.is_dir() && depth > 0 {
            look_through(&path, depth - 1, kept, found)?;
            if written.elapsed().is_ok_and(|age| age > kept) {
                // Fails unless it is empty.
                let _ = std::fs::remove_dir(&path);
            }
        }
    }
    Ok(())
}

/// A file in its place.
struct Kept {
    path: PathBuf,
    mime: String,
    size: u64,
}

/// For the owner alone.
async fn folder(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    disk(move || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
    })
    .await
}

/// A disk may be slow.
async fn disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    petasos_runtime::blocking(work).await.map_err(|_panicked| io::Error::from(io::ErrorKind::Other))?
}

/// Its type, what it is, and how its name ends. Never anything of the sender's path.
fn sort(attachment: &Attachment, fetched: &Fetched) -> Result<(String, Sort, String), String> {
    if fetched.size == 0 {
        return Err("it is empty".to_owned());
    }
    if let Some(mime) = media::image_type(&fetched.head) {
        let extension = media::extension_for(mime).map_or("bin", |(extension, _)| extension);
        return Ok((mime.to_owned(), Sort::Image, extension.to_owned()));
    }
    if attachment.kind == "photo" {
        return Err("it is not a picture that can be shown".to_owned());
    }
    let name = attachment.name.as_deref().unwrap_or_default();
    let said = attachment.mime.as_deref().or(fetched.mime.as_deref()).unwrap_or_default();
    let (by_name, name_sort) = media::of_name(name);
    let known = media::extension_for(said).filter(|(_, sort)| *sort != Sort::Image);
    if let Some((extension, sort)) = known {
        return Ok((said.to_owned(), sort, extension.to_owned()));
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let plain = (1..=8).contains(&extension.len()) && extension.bytes().all(|c| c.is_ascii_alphanumeric());
    let extension = if plain { extension.to_ascii_lowercase() } else { "bin".to_owned() };
    let mime = if said.is_empty() { by_name.to_owned() } else { said.to_owned() };
    let sort = if name_sort == Sort::Image { Sort::Document } else { name_sort };
    Ok((mime, sort, extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[track_caller]
    fn check(kind: &str, name: &str, mime: &str, head: &[u8], want: Result<(&str, Sort, &str), &str>) {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let attachment =
            Attachment { kind: kind.into(), name: some(name), mime: some(mime), ..Attachment::default() };
        let fetched = Fetched { size: head.len() as u64, mime: None, head: head.to_vec() };
        let got = sort(&attachment, &fetched);
        let want = want.map(|(mime, sort, end)| (mime.to_owned(), sort, end.to_owned()));
        assert_eq!(got, want.map_err(str::to_owned), "{kind} {name} {mime}");
    }

    #[test]
    fn a_file_is_what_its_bytes_say_before_what_its_sender_says() {
        let no_picture = Err("it is not a picture that can be shown");
        check("photo", "", "", PNG, Ok(("image/png", Sort::Image, "png")));
        check("document", "a.exe", "application/x-msdownload", PNG, Ok(("image/png", Sort::Image, "png")));
        check("photo", "a.png", "image/png", b"<html>", no_picture);
        check("voice", "", "audio/ogg", b"OggS", Ok(("audio/ogg", Sort::Audio, "ogg")));
        check("document", "a.pdf", "", b"%PDF", Ok(("application/pdf", Sort::Document, "pdf")));
        check("document", "a.svg", "image/svg+xml", b"<svg>", Ok(("image/svg+xml", Sort::Document, "svg")));
        check("document", "../../x", "", b"?", Ok(("application/octet-stream", Sort::Document, "bin")));
        check("document", "a.b/../c", "", b"?", Ok(("application/octet-stream", Sort::Document, "bin")));
        check("document", "a.txt", "", b"", Err("it is empty"));
    }

    /// Files by their names and ages.
    fn cache(home: &Path, files: &[(&str, Duration)]) {
        for (name, age) in files {
            let path = home.join("cache").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, PNG).expect("written");
            let file = std::fs::File::options().write(true).open(&path).expect("open");
            file.set_modified(SystemTime::now() - *age).expect("a moment");
        }
    }

    #[track_caller]
    fn left(home: &Path, files: &[(&str, Duration)], want: &[bool]) {
        let there: Vec<bool> = files.iter().map(|(name, _)| home.join("cache").join(name).exists()).collect();
        assert_eq!(there, want, "{files:?}");
    }

    #[test]
    fn the_cache_loses_what_is_old_and_not_waited_for() {
        let home = tempfile::tempdir().expect("a home");
        let kept = Duration::from_secs(3 * 24 * 3600);
        let fetcher = Fetcher::new(home.path(), Inward { kept, ..Inward::default() });
        let old = kept + Duration::from_secs(60);
        let files = [
            ("images/a/1-0.png", old),
            ("images/b/2-0.png", old),
            ("images/a/3-0.png", kept - Duration::from_secs(60)),
        ];
        cache(home.path(), &files);
        let referred = HashSet::from([home.path().join("cache/images/b/2-0.png")]);
        assert_eq!(fetcher.clean(&referred).expect("cleaned"), 1);
        left(home.path(), &files, &[false, true, true]);
        let nowhere = Fetcher::new(&home.path().join("none"), Inward::default());
        assert_eq!(nowhere.clean(&referred).expect("nothing there"), 0);
    }

    #[test]
    fn of_too_much_the_oldest_goes_and_nothing_that_is_new_or_waited_for() {
        let home = tempfile::tempdir().expect("a home");
        let most = Some(PNG.len() as u64 * 3);
        let fetcher = Fetcher::new(home.path(), Inward { total: most, ..Inward::default() });
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
        assert_eq!(fetcher.clean(&referred).expect("cleaned"), 2);
        left(home.path(), &files, &[true, false, false, true, true]);
    }

    #[test]
    fn every_session_has_folders_of_its_own() {
        let of = |key: &str| folders(Path::new("/h"), &SessionKey(key.into()));
        let (one, other) = (of("agent:main:telegram:dm:7"), of("agent:main:telegram:dm:../7"));
        assert!(one.iter().all(|folder| !other.contains(folder)) && one.len() == 4);
        assert!(other.iter().all(|folder| folder.components().count() == 5), "{other:?}");
    }
}
