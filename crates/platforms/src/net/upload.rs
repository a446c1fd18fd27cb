//! Uploads: streamed from disk, with a known length.

use std::io;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, RequestBuilder};
use serde_json::Value;

use crate::http::HttpError;
use crate::{OpenFile, OutgoingFile};

const CHUNK: usize = 128 * 1024;
const MIN_BYTES_PER_SECOND: u64 = 256 * 1024;

/// Limit for reading a file's metadata.
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);

/// An open file with its length. Bytes appended later are not sent.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    pub(crate) file: &'a OutgoingFile,
    pub(crate) size: u64,
    opened: OpenFile,
}

impl<'a> Upload<'a> {
    pub(crate) async fn open(file: &'a OutgoingFile) -> Result<Self, HttpError> {
        let opened = file.opened.clone();
        let about = petasos_runtime::blocking(move || opened.metadata());
        let about = tokio::time::timeout(METADATA_TIMEOUT, about).await;
        let about = about.map_or_else(
            |_elapsed| Err(io::ErrorKind::TimedOut.into()),
            |about| about.map_err(io::Error::other)?,
        );
        let about = about.map_err(|error: io::Error| HttpError::UnreadableFile(error.kind().to_string()))?;
        if !about.is_file() {
            return Err(HttpError::UnreadableFile("it is not a file".into()));
        }
        Ok(Self { file, size: about.len(), opened: file.opened.clone() })
    }

    /// Timeout of the request; `within` is that of a request without a file.
    pub(crate) fn timeout(&self, within: Duration) -> Duration {
        within + Duration::from_secs(self.size / MIN_BYTES_PER_SECOND)
    }

    pub(crate) fn raw_body(self, request: RequestBuilder) -> RequestBuilder {
        let mime = self.file.mime;
        let size = self.size;
        let body = Body::wrap_stream(bytes(self.opened, size));
        request.header(CONTENT_TYPE, mime).header(CONTENT_LENGTH, size).body(body)
    }

    /// Multipart form: `fields`, then the file under the name `field`.
    pub(crate) fn form(
        self,
        request: RequestBuilder,
        fields: &[(&str, String)],
        field: &str,
    ) -> Result<RequestBuilder, HttpError> {
        let boundary = boundary()?;
        let head = head(&boundary, fields, field, self.file);
        let tail = format!("\r\n--{boundary}--\r\n");
        let length = head.len() as u64 + self.size + tail.len() as u64;
        let whole = |text: String| stream::iter([Ok(text.into_bytes())]);
        let parts = whole(head).chain(bytes(self.opened, self.size)).chain(whole(tail));
        let kind = format!("multipart/form-data; boundary={boundary}");
        Ok(request.header(CONTENT_TYPE, kind).header(CONTENT_LENGTH, length).body(Body::wrap_stream(parts)))
    }
}

/// Form fields of a JSON object: strings as they are, other values as JSON.
pub(crate) fn fields(parameters: &Value) -> Vec<(&str, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let object = parameters.as_object().into_iter().flatten();
    object.map(|(name, value)| (name.as_str(), text(value))).collect()
}

fn head(boundary: &str, fields: &[(&str, String)], field: &str, file: &OutgoingFile) -> String {
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

/// Escapes a file name as browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Random, so no file contains it.
fn boundary() -> Result<String, HttpError> {
    let high = getrandom::u64();
    let low = getrandom::u64();
    let (Ok(high), Ok(low)) = (high, low) else {
        return Err(HttpError::ConnectFailed("no random numbers".into()));
    };
    Ok(format!("petasos-{high:016x}{low:016x}"))
}

/// Exactly `size` bytes, or an error if the file has shrunk.
fn bytes(opened: OpenFile, size: u64) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    stream::try_unfold((opened, 0), move |(opened, at)| async move {
        if at == size {
            return Ok(None);
        }
        let most = usize::try_from(size - at).unwrap_or(CHUNK).min(CHUNK);
        let read = petasos_runtime::blocking(move || {
            let mut chunk = vec![0; most];
            let read = opened.read_at(&mut chunk, at)?;
            chunk.truncate(read);
            Ok::<_, io::Error>((chunk, opened))
        });
        let (chunk, opened) = read.await.map_err(io::Error::other)??;
        if chunk.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let next = at + chunk.len() as u64;
        Ok(Some((chunk, (opened, next))))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::TryStreamExt;
    use rustix::fs::{CWD, FileType, Mode};
    use serde_json::json;

    use super::*;
    use crate::MediaKind;

    #[test]
    fn writes_form_fields_and_escapes_file_names() {
        let name = "a\"\r\nX: y.png".into();
        let file = OutgoingFile {
            opened: tempfile::tempfile().expect("a file").into(),
            name,
            mime: "image/png",
            show: MediaKind::Photo,
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

    fn document_at(path: &Path) -> OutgoingFile {
        let opened = OpenFile::at(path).expect("there");
        OutgoingFile { opened, name: "x".into(), mime: "text/plain", show: MediaKind::Document }
    }

    async fn sent(file: &OutgoingFile) -> String {
        let upload = Upload::open(file).await.expect("readable");
        let chunks: Vec<Vec<u8>> = bytes(upload.opened, upload.size).try_collect().await.expect("read");
        String::from_utf8(chunks.concat()).expect("text")
    }

    #[tokio::test]
    async fn sends_the_opened_file_even_if_its_path_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["judged", "secret"] {
            std::fs::write(path(name), name).expect("written");
        }
        let judged = document_at(&path("judged"));
        assert_eq!(sent(&judged).await, "judged");
        std::fs::remove_file(path("judged")).expect("gone");
        std::os::unix::fs::symlink(path("secret"), path("judged")).expect("linked");
        assert_eq!(sent(&judged).await, "judged", "at every try");
        assert!(OpenFile::at(&path("judged")).is_err(), "links are not followed");
    }

    #[tokio::test]
    async fn refuses_pipes_without_blocking() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert!(matches!(Upload::open(&document_at(&path)).await, Err(HttpError::UnreadableFile(_))));
    }

    #[tokio::test]
    async fn extends_the_timeout_for_large_files() {
        let file = document_at(&std::env::current_exe().expect("this test"));
        let mut upload = Upload::open(&file).await.expect("readable");
        upload.size = 50 << 20;
        assert_eq!(upload.timeout(Duration::from_secs(20)), Duration::from_secs(220));
    }
}
