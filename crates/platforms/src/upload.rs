//! A file on its way out: streamed from disk, never held in memory, with its length said in advance.

use std::fs::Metadata;
use std::io;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, RequestBuilder};
use rustix::fs::OFlags;
use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::http::Failure;
use crate::{File, Identity};

/// Bytes read at once.
const CHUNK: usize = 128 * 1024;
/// The slowest line that an upload is waited for, in bytes per second.
const SLOWEST: u64 = 256 * 1024;

/// How long a disk may take to open a file.
const OPENED_WITHIN: Duration = Duration::from_secs(10);

/// A file that has been opened. Its length is that of this moment; what is appended later is not sent.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    pub(crate) file: &'a File,
    pub(crate) size: u64,
    handle: tokio::fs::File,
}

impl<'a> Upload<'a> {
    pub(crate) async fn open(file: &'a File) -> Result<Self, Failure> {
        let opened = tokio::time::timeout(OPENED_WITHIN, open(file)).await;
        let opened = opened.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        let (handle, about) = opened.map_err(|error| Failure::File(error.kind().to_string()))?;
        if !about.is_file() {
            return Err(Failure::File("it is no file".into()));
        }
        if Identity::from(&about) != file.identity {
            return Err(Failure::File("it is another one by now".into()));
        }
        Ok(Self { file, size: about.len(), handle })
    }

    /// How long it may take, when a request without a file may take `within`.
    pub(crate) fn patience(&self, within: Duration) -> Duration {
        within + Duration::from_secs(self.size / SLOWEST)
    }

    /// The file alone is the body.
    pub(crate) fn bare(self, request: RequestBuilder) -> RequestBuilder {
        let (mime, size) = (self.file.mime, self.size);
        let body = Body::wrap_stream(bytes(self.handle, size));
        request.header(CONTENT_TYPE, mime).header(CONTENT_LENGTH, size).body(body)
    }

    /// The body is a form: `fields`, then the file under the name `field`.
    pub(crate) fn form(
        self,
        request: RequestBuilder,
        fields: &[(&str, String)],
        field: &str,
    ) -> Result<RequestBuilder, Failure> {
        let boundary = boundary()?;
        let head = head(&boundary, fields, field, self.file);
        let tail = format!("\r\n--{boundary}--\r\n");
        let length = head.len() as u64 + self.size + tail.len() as u64;
        let whole = |text: String| stream::iter([Ok(text.into_bytes())]);
        let parts = whole(head).chain(bytes(self.handle, self.size)).chain(whole(tail));
        let kind = format!("multipart/form-data; boundary={boundary}");
        Ok(request.header(CONTENT_TYPE, kind).header(CONTENT_LENGTH, length).body(Body::wrap_stream(parts)))
    }
}

/// Follows no link and waits for nobody at the other end: what lies at the path now may be anything.
async fn open(file: &File) -> io::Result<(tokio::fs::File, Metadata)> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = tokio::fs::OpenOptions::new();
    // Every flag has its place in the system's own number, which is signed.
    options.read(true).custom_flags(flags.bits().cast_signed());
    let handle = options.open(&file.path).await?;
    let about = handle.metadata().await?;
    Ok((handle, about))
}

/// The fields of a form from those of an object: texts as they are, everything else as JSON.
pub(crate) fn fields(parameters: &Value) -> Vec<(&str, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let object = parameters.as_object().into_iter().flatten();
    object.map(|(name, value)| (name.as_str(), text(value))).collect()
}

fn head(boundary: &str, fields: &[(&str, String)], field: &str, file: &File) -> String {
    let mut head = String::new();
    for (name, value) in fields {
        head.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    let name = quoted(&file.name);
    head.push_str(&format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
         Content-Type: {}\r\n\r\n",
        file.mime
    ));
    head
}

/// As browsers write it in such a header.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Nothing that a file could contain by chance.
fn boundary() -> Result<String, Failure> {
    let (high, low) = (getrandom::u64(), getrandom::u64());
    let (Ok(high), Ok(low)) = (high, low) else {
        return Err(Failure::Unreached("no random numbers".into()));
    };
    Ok(format!("petasos-{high:016x}{low:016x}"))
}

/// Exactly `size` bytes, or an error: a file that shrank meanwhile must not look complete.
fn bytes(handle: tokio::fs::File, size: u64) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    stream::try_unfold((handle, size), |(mut handle, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut chunk = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
        let read = handle.read(&mut chunk).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        chunk.truncate(read);
        Ok(Some((chunk, (handle, left - read as u64))))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode};
    use serde_json::json;

    use super::*;
    use crate::Show;

    #[test]
    fn a_form_begins_with_its_fields_and_no_name_breaks_out_of_its_header() {
        let name = "a\"\r\nX: y.png".into();
        let file = File {
            path: "/x".into(),
            identity: Identity::default(),
            name,
            mime: "image/png",
            show: Show::Photo,
        };
        let parameters = json!({ "chat_id": 7, "caption": "hi", "reply_parameters": { "message_id": 3 } });
        let head = head("B", &fields(&parameters), "photo", &file);
        for (name, value) in [("caption", "hi"), ("chat_id", "7"), ("reply_parameters", "{\"message_id\":3}")]
        {
            let field = format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            assert!(head.contains(&field), "{name}: {head}");
        }
        let last = "--B\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"a%22%0D%0AX: y.png\"\r\n\
                    Content-Type: image/png\r\n\r\n";
        assert!(head.ends_with(last), "{head}");
    }

    /// The file that lies there now.
    fn lying(path: &Path) -> File {
        let about = std::fs::symlink_metadata(path).expect("there");
        let identity = Identity::from(&about);
        File { path: path.into(), identity, name: "x".into(), mime: "text/plain", show: Show::Document }
    }

    #[tokio::test]
    async fn a_file_that_became_another_one_is_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["judged", "secret"] {
            std::fs::write(path(name), name).expect("written");
        }
        let judged = lying(&path("judged"));
        assert!(Upload::open(&judged).await.is_ok());
        // Kept, so that its number is not given to another.
        std::fs::rename(path("judged"), path("elsewhere")).expect("moved");
        std::os::unix::fs::symlink(path("secret"), path("judged")).expect("linked");
        assert!(matches!(Upload::open(&judged).await, Err(Failure::File(_))), "a link");
        std::fs::rename(path("secret"), path("judged")).expect("moved");
        assert!(matches!(Upload::open(&judged).await, Err(Failure::File(_))), "another file");
        std::fs::remove_file(path("judged")).expect("gone");
        rustix::fs::mknodat(CWD, path("judged"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        let begun = std::time::Instant::now();
        assert!(matches!(Upload::open(&lying(&path("judged"))).await, Err(Failure::File(_))), "a pipe");
        assert!(begun.elapsed() < OPENED_WITHIN, "nobody waited for a writer");
    }

    #[tokio::test]
    async fn a_large_file_is_waited_for_longer() {
        let file = lying(&std::env::current_exe().expect("this test"));
        let mut upload = Upload::open(&file).await.expect("readable");
        upload.size = 50 << 20;
        assert_eq!(upload.patience(Duration::from_secs(20)), Duration::from_secs(220));
    }
}
