//! Files that people send: fetched into the cache before their message is let in.
//!
//! Owns `<home>/cache`. A file is named after its message and its place in it, so fetching it again after a crash
//! replaces it; it is written beside its place, synced and renamed, so it is there whole or not at all. What
//! became of it is kept in the inbox before the message is let in: a message never waits for a file for ever,
//! and never gets lost with one.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use petasos_core::media::{self, Sort};
use petasos_core::message::Attachment;
use petasos_core::{Inbound, InboxId, Source};
use petasos_platforms::download::Error;
use petasos_platforms::{Adapter, Fetched};
use tokio::sync::Semaphore;

/// Files under way at the same time, over all chats.
const HANDS: usize = 4;
/// Tries, and the pause between them.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// Files of one message that are fetched; the rest is named.
const MOST_FILES: usize = 20;
/// A file that nobody waits for any more goes at this age.
const KEPT: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(crate) struct Fetcher {
    cache: PathBuf,
    /// Largest file; `None`: any.
    most: Option<u64>,
    hands: Semaphore,
}

impl Fetcher {
    pub(crate) fn new(home: &Path, most: Option<u64>) -> Self {
        Self { cache: home.join(media::CACHE), most, hands: Semaphore::new(HANDS) }
    }

    pub(crate) fn wants(inbound: &Inbound) -> bool {
        inbound.attachments.iter().any(Attachment::is_wanted)
    }

    /// The message with what became of its files. Without an adapter nobody can fetch anything.
    pub(crate) async fn fetch(
        &self,
        adapter: Option<&Adapter>,
        id: InboxId,
        mut inbound: Inbound,
    ) -> Inbound {
        let source = inbound.source.clone();
        for (index, attachment) in inbound.attachments.iter_mut().enumerate() {
            if !attachment.is_wanted() {
                continue;
            }
            let fetched = match adapter {
                _ if index >= MOST_FILES => Err("there are too many files in one message".to_owned()),
                None => Err("files cannot be read from here".to_owned()),
                Some(adapter) => self.one(adapter, &source, attachment, &format!("{id}-{index}")).await,
            };
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
        adapter: &Adapter,
        source: &Source,
        attachment: &Attachment,
        stem: &str,
    ) -> Result<Kept, String> {
        // Never closed.
        let _hand = self.hands.acquire().await;
        let part = self.cache.join(format!(".{stem}.part"));
        let mut tries = 0;
        let fetched = loop {
            tries += 1;
            match self.attempt(adapter, source, attachment, &part).await {
                Ok(fetched) => break Ok(fetched),
                Err(error) if tries < TRIES && error.is_passing() => {
                    tracing::debug!(platform = %source.platform, %error, "a file is fetched again");
                    tokio::time::sleep(PAUSE * tries).await;
                }
                Err(error) => break Err(error.to_string()),
            }
        };
        let kept = match fetched {
            Ok(fetched) => self.keep(attachment, &fetched, stem, &part).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &kept {
            tracing::warn!(platform = %source.platform, error, "a file that somebody sent could not be fetched");
            // Gone already, if it was never made.
            let _ = tokio::fs::remove_file(&part).await;
        }
        kept
    }

    async fn attempt(
        &self,
        adapter: &Adapter,
        source: &Source,
        attachment: &Attachment,
        part: &Path,
    ) -> Result<Fetched, Error> {
        let disk = |error: io::Error| Error::Disk(error.kind());
        folder(&self.cache).await.map_err(disk)?;
        let mut options = tokio::fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(part).await.map_err(disk)?;
        let most = self.most.unwrap_or(u64::MAX);
        let fetched = adapter.fetch(source, attachment, most, &mut file).await?;
        file.sync_all().await.map_err(disk)?;
        Ok(fetched)
    }

    /// Puts a whole file into its place. What claims to be a picture must be one.
    async fn keep(
        &self,
        attachment: &Attachment,
        fetched: &Fetched,
        stem: &str,
        part: &Path,
    ) -> Result<Kept, String> {
        let (mime, sort, extension) = sort(attachment, fetched)?;
        let within = self.cache.join(match sort {
            Sort::Image => "images",
            Sort::Audio => "audio",
            Sort::Video => "videos",
            Sort::Document => "documents",
        });
        let path = within.join(format!("{stem}.{extension}"));
        let placed = async {
            folder(&within).await?;
            tokio::fs::rename(part, &path).await?;
            tokio::fs::File::open(&within).await?.sync_all().await
        };
        placed.await.map_err(|error| Error::Disk(error.kind()).to_string())?;
        Ok(Kept { path, mime, size: fetched.size })
    }

    /// Takes away what is old and what nobody refers to. `referred`: files of messages without an outcome.
    pub(crate) fn clean(&self, referred: &HashSet<PathBuf>) -> io::Result<usize> {
        let mut gone = 0;
        for folder in ["", "images", "audio", "videos", "documents"] {
            let entries = match std::fs::read_dir(self.cache.join(folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let about = entry.metadata()?;
                let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let old = written.elapsed().is_ok_and(|age| age > KEPT);
                if about.is_file() && old && !referred.contains(&entry.path()) {
                    std::fs::remove_file(entry.path())?;
                    gone += 1;
                }
            }
        }
        Ok(gone)
    }
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
    let made = tokio::task::spawn_blocking(move || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
    });
    made.await.map_err(|_panicked| io::Error::from(io::ErrorKind::Other))?
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

    #[test]
    fn the_cache_loses_what_is_old_and_not_waited_for() {
        let home = tempfile::tempdir().expect("a home");
        let fetcher = Fetcher::new(home.path(), None);
        let images = home.path().join("cache/images");
        std::fs::create_dir_all(&images).expect("a folder");
        let old = SystemTime::now() - KEPT - Duration::from_secs(60);
        for (name, age) in [("1-0.png", old), ("2-0.png", old), ("3-0.png", SystemTime::now())] {
            std::fs::write(images.join(name), PNG).expect("written");
            let file = std::fs::File::options().write(true).open(images.join(name)).expect("open");
            file.set_modified(age).expect("a moment");
        }
        let referred = HashSet::from([images.join("2-0.png")]);
        assert_eq!(fetcher.clean(&referred).expect("cleaned"), 1);
        let left = |name: &str| images.join(name).exists();
        assert_eq!((left("1-0.png"), left("2-0.png"), left("3-0.png")), (false, true, true));
        assert_eq!(Fetcher::new(&home.path().join("none"), None).clean(&referred).expect("nothing there"), 0);
    }
}
