//! Files between platforms and gateways. What came in stays with its platform until a gateway fetches it through us; what
//! a gateway sends lies here for an hour, under a name that nobody can guess, and is its own instance's alone.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::message::{Attachment, Inbound};
use petasos_core::{Millis, Source};
use petasos_gateway::Commit;
use petasos_gateway::{Error, clock};
use petasos_platforms::{File, Opened, Show};
use petasos_relay::Media as Kind;
use petasos_store::Error as StoreError;
use petasos_store::connector::Media;
use serde_json::json;
use tokio::fs;

use crate::shell::Shell;

/// The largest file that passes through.
pub(crate) const LARGEST: usize = 25 << 20;
/// What all files from the gateways of one instance may take up: the disk is everybody's.
const QUOTA: u64 = 256 << 20;
/// How long a file from a gateway is kept.
const UPLOADED: Duration = Duration::from_secs(3600);
/// A file that came in can be fetched as long as its message may wait, and a little longer.
const OFFERED: Duration = Duration::from_secs(8 * 24 * 3600);
pub(crate) const PATH: &str = "/relay/media/";

pub(crate) fn folder(shell: &Shell) -> PathBuf {
    shell.home.join("connector-media")
}

/// Addresses for the files of a message, by the platform's handle of each.
pub(crate) async fn offer(
    shell: &Shell,
    instance: &str,
    event: &Inbound,
    now: Millis,
) -> Result<HashMap<String, String>, Error> {
    let media = |file: &Attachment| {
        let offered = json!({ "source": event.source, "attachment": file }).to_string();
        let (name, mime) = (file.name.clone(), file.mime.clone());
        let (id, instance) = (fresh(), instance.to_owned());
        (
            file.reference.clone(),
            Media {
                id,
                instance,
                reference: Some(offered),
                name,
                mime,
                size: 0,
                expires_at: now.after(OFFERED),
            },
        )
    };
    let all: Vec<_> = event.attachments.iter().filter(|file| file.is_file()).map(media).collect();
    if all.is_empty() {
        return Ok(HashMap::new());
    }
    let url = |id: &str| format!("{}{PATH}{id}", shell.url);
    let urls = all.iter().map(|(reference, media)| (reference.clone(), url(&media.id))).collect();
    shell
        .db
        .write(Commit::Connector, move |tx| all.iter().try_for_each(|(_, media)| tx.put_media(media)))
        .await?;
    Ok(urls)
}

/// A file from a gateway; its id.
pub(crate) async fn keep(
    shell: &Shell,
    instance: &str,
    bytes: &[u8],
    name: Option<String>,
    mime: Option<String>,
) -> Result<String, Error> {
    let id = fresh();
    let failed = |error: io::Error| Error::Io(format!("a file cannot be kept: {error}"));
    let folder = folder(shell);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).await.map_err(failed)?;
    let path = folder.join(&id);
    let size = bytes.len() as u64;
    let (instance, expires_at) = (instance.to_owned(), clock::now().after(UPLOADED));
    let media = Media { id: id.clone(), instance, reference: None, name, mime, size, expires_at };
    fs::write(&path, bytes).await.map_err(failed)?;
    let kept = shell.db.write(Commit::Connector, move |tx| {
        if tx.media_bytes(&media.instance)? + media.size > QUOTA {
            return Err(StoreError::Conflict("too many files lie here already; they go within the hour"));
        }
        tx.put_media(&media)
    });
    if let Err(error) = kept.await {
        fs::remove_file(&path).await.map_err(failed)?;
        return Err(error);
    }
    Ok(id)
}

/// A file that a gateway of this instance may have: its bytes, and what is said of it.
pub(crate) async fn fetch(
    shell: &Arc<Shell>,
    instance: &str,
    id: &str,
) -> Result<Option<(Vec<u8>, Media)>, Error> {
    let (id, of, now) = (id.to_owned(), instance.to_owned(), clock::now());
    let Some(media) = shell.db.read(move |reader| reader.media(&id, &of, now)).await? else {
        return Ok(None);
    };
    let bytes = match &media.reference {
        None => match fs::read(folder(shell).join(&media.id)).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Io(error.to_string())),
        },
        Some(offered) => match from_platform(shell, &media.id, offered).await? {
            Some(bytes) => bytes,
            None => return Ok(None),
        },
    };
    Ok(Some((bytes, media)))
}

/// A file that goes when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a file stays until the next sweep");
        }
    }
}

async fn from_platform(shell: &Shell, id: &str, offered: &str) -> Result<Option<Vec<u8>>, Error> {
    #[derive(serde::Deserialize)]
    struct Offered {
        source: Source,
        attachment: Attachment,
    }
    let Ok(Offered { source, attachment }) = serde_json::from_str(offered) else { return Ok(None) };
    let Some(adapter) = shell.adapters.of(source.platform) else { return Ok(None) };
    let failed = |error: io::Error| Error::Io(error.to_string());
    let folder = folder(shell);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).await.map_err(failed)?;
    // Whoever asked may go before it is here.
    let scratch = Scratch(folder.join(format!("{id}.{}", fresh())));
    let mut file = fs::File::create(&scratch.0).await.map_err(failed)?;
    let fetched = adapter.fetch(&source, &attachment, LARGEST as u64, &mut file).await;
    let bytes = fs::read(&scratch.0).await;
    drop(scratch);
    match fetched {
        Ok(_fetched) => Ok(Some(bytes.map_err(failed)?)),
        Err(error) => {
            tracing::warn!(%error, "a file was not fetched from its platform");
            Ok(None)
        }
    }
}

/// What a gateway wants sent: only what it brought here itself.
pub(crate) async fn uploaded(
    shell: &Shell,
    instance: &str,
    url: &str,
    kind: Kind,
    name: Option<String>,
) -> Result<File, &'static str> {
    const UNKNOWN: &str = "no file of this instance; bring it to /relay/media first";
    let id = url.rsplit_once(PATH).map_or("", |(_, id)| id).to_owned();
    let (of, now) = (instance.to_owned(), clock::now());
    let found = shell.db.read(move |reader| reader.media(&id, &of, now)).await;
    let media = found.ok().flatten().filter(|media| media.reference.is_none()).ok_or(UNKNOWN)?;
    let path = folder(shell).join(&media.id);
    let opened = tokio::task::spawn_blocking(move || Opened::at(&path)).await;
    let opened = opened.ok().and_then(Result::ok).ok_or(UNKNOWN)?;
    let show = match kind {
        Kind::Image => Show::Photo,
        Kind::Voice => Show::Voice,
        Kind::Audio => Show::Audio,
        Kind::Video => Show::Video,
        Kind::Document => Show::Document,
    };
    let name = name.or(media.name).unwrap_or_else(|| "file".to_owned());
    Ok(File { opened, name, mime: mime(kind), show })
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

/// 128 random bits.
pub(crate) fn fresh() -> String {
    clock::random::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}
