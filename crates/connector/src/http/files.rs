//! Files in transit. An inbound file stays on its platform until a gateway fetches it. An outbound file is stored for
//! an hour under a random name; a crash may leave a file without a row, which `retention` deletes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use petasos_core::message::{Attachment, Inbound};
use petasos_core::{InstanceId, Millis, Source};
use petasos_gateway::shell::Db;
use petasos_gateway::{Commit, Error, clock};
use petasos_platforms::{MediaKind, OpenFile, OutgoingFile};
use petasos_relay::Media as Kind;
use petasos_store::Error as StoreError;
use petasos_store::connector::Media;
use serde_json::json;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::adapters::Adapters;

pub(crate) const MAX_SIZE: usize = 25 << 20;
/// Of the stored files of one instance.
const QUOTA: u64 = 256 << 20;
const UPLOAD_RETENTION: Duration = Duration::from_secs(3600);
/// Validity of an inbound file: longer than its message may wait.
const OFFER_VALIDITY: Duration = Duration::from_secs(8 * 24 * 3600);
pub(crate) const PATH: &str = "/relay/media/";

#[derive(Debug)]
pub(crate) struct MediaFiles {
    db: Db,
    adapters: Arc<Adapters>,
    folder: PathBuf,
    /// Public address for gateways.
    url: String,
}

impl MediaFiles {
    pub(crate) fn new(db: Db, adapters: Arc<Adapters>, home: &Path, url: String) -> Self {
        Self { db, adapters, folder: home.join("connector-media"), url }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Download addresses for the files of a message, by platform reference.
    pub(crate) async fn offer(
        &self,
        instance: &InstanceId,
        event: &Inbound,
        now: Millis,
    ) -> Result<HashMap<String, String>, Error> {
        let media = |file: &Attachment| {
            let offered = json!({ "source": event.source, "attachment": file }).to_string();
            let media = Media {
                id: clock::random_hex::<16>(),
                instance: instance.clone(),
                reference: Some(offered),
                name: file.name.clone(),
                mime: file.mime.clone(),
                size: 0,
                expires_at: now.after(OFFER_VALIDITY),
            };
            (file.reference.clone(), media)
        };
        let all: Vec<_> = event.attachments.iter().filter(|file| file.is_file()).map(media).collect();
        if all.is_empty() {
            return Ok(HashMap::new());
        }
        let url = |id: &str| format!("{}{PATH}{id}", self.url);
        let urls = all.iter().map(|(reference, media)| (reference.clone(), url(&media.id))).collect();
        self.db
            .write(Commit::Connector, move |tx| all.iter().try_for_each(|(_, media)| tx.put_media(media)))
            .await?;
        Ok(urls)
    }

    /// Stores an outbound file and returns its id.
    pub(crate) async fn store(
        &self,
        instance: &InstanceId,
        bytes: &[u8],
        name: Option<String>,
        mime: Option<String>,
    ) -> Result<String, Error> {
        let id = clock::random_hex::<16>();
        let failed = |error: io::Error| Error::Io(format!("a file cannot be stored: {error}"));
        self.create_folder().await.map_err(failed)?;
        let path = self.folder.join(&id);
        let size = bytes.len() as u64;
        let instance = instance.clone();
        let expires_at = clock::now().after(UPLOAD_RETENTION);
        let media = Media { id: id.clone(), instance, reference: None, name, mime, size, expires_at };
        write_private(&path, bytes).await.map_err(failed)?;
        let stored = self.db.write(Commit::Connector, move |tx| {
            if tx.media_bytes(&media.instance)? + media.size > QUOTA {
                return Err(StoreError::Conflict(
                    "the file quota of this instance is used up; files are deleted after an hour",
                ));
            }
            tx.put_media(&media)
        });
        if let Err(error) = stored.await {
            fs::remove_file(&path).await.map_err(failed)?;
            return Err(error);
        }
        Ok(id)
    }

    pub(crate) async fn fetch(
        &self,
        instance: &InstanceId,
        id: &str,
    ) -> Result<Option<(Vec<u8>, Media)>, Error> {
        let Some(media) = self.find(instance, id).await? else { return Ok(None) };
        let bytes = match &media.reference {
            None => match fs::read(self.folder.join(&media.id)).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Error::Io(error.to_string())),
            },
            Some(offered) => match self.fetch_from_platform(&media.id, offered).await? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        Ok(Some((bytes, media)))
    }

    async fn fetch_from_platform(&self, id: &str, offered: &str) -> Result<Option<Vec<u8>>, Error> {
        #[derive(serde::Deserialize)]
        struct OfferedFile {
            source: Source,
            attachment: Attachment,
        }
        let Ok(OfferedFile { source, attachment }) = serde_json::from_str(offered) else { return Ok(None) };
        let Some(adapter) = self.adapters.of(source.platform) else { return Ok(None) };
        let failed = |error: io::Error| Error::Io(error.to_string());
        self.create_folder().await.map_err(failed)?;
        // Deleted even if the request is cancelled.
        let temporary = TemporaryFile(self.folder.join(format!("{id}.{}", clock::random_hex::<16>())));
        let mut file = private_file(&temporary.0).await.map_err(failed)?;
        let fetched = adapter.fetch(&source, &attachment, MAX_SIZE as u64, &mut file).await;
        let bytes = fs::read(&temporary.0).await;
        drop(temporary);
        match fetched {
            Ok(_fetched) => Ok(Some(bytes.map_err(failed)?)),
            Err(error) => {
                tracing::warn!(%error, "cannot fetch a file from its platform");
                Ok(None)
            }
        }
    }

    /// Opens an outbound file that this instance uploaded.
    pub(crate) async fn open_upload(
        &self,
        instance: &InstanceId,
        url: &str,
        kind: Kind,
        name: Option<String>,
    ) -> Result<OutgoingFile, &'static str> {
        const UNKNOWN: &str = "unknown file; upload it to /relay/media first";
        let found = self.find(instance, file_id(url)).await.ok().flatten();
        let media = found.filter(|media| media.reference.is_none()).ok_or(UNKNOWN)?;
        let path = self.folder.join(&media.id);
        let opened = petasos_runtime::blocking(move || OpenFile::at(&path)).await;
        let opened = opened.ok().and_then(Result::ok).ok_or(UNKNOWN)?;
        let show = match kind {
            Kind::Image => MediaKind::Photo,
            Kind::Voice => MediaKind::Voice,
            Kind::Audio => MediaKind::Audio,
            Kind::Video => MediaKind::Video,
            Kind::Document => MediaKind::Document,
        };
        let name = name.or(media.name).unwrap_or_else(|| "file".to_owned());
        Ok(OutgoingFile { opened, name, mime: mime(kind), show })
    }

    async fn find(&self, instance: &InstanceId, id: &str) -> Result<Option<Media>, Error> {
        let id = id.to_owned();
        let instance = instance.clone();
        let now = clock::now();
        self.db.read(move |reader| reader.media(&id, &instance, now)).await
    }

    async fn create_folder(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).await
    }
}

/// The file's id in its address or path.
pub(super) fn file_id(address: &str) -> &str {
    address.rsplit_once(PATH).map_or("", |(_, id)| id)
}

async fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_file(path).await?;
    file.write_all(bytes).await?;
    // Dropping the file would not wait for the write.
    file.flush().await
}

async fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).await
}

struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot delete a temporary file");
        }
    }
}

const fn mime(kind: Kind) -> &'static str {
    match kind {
        Kind::Image => "image/png",
        Kind::Voice => "audio/ogg",
        Kind::Audio => "audio/mpeg",
        Kind::Video => "video/mp4",
        Kind::Document => "application/octet-stream",
    }
}
