//! Hosted files, and multipart uploads.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::faults::pipeline::{self, Completion};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub field: String,
    pub name: String,
    pub mime: String,
    pub content: Bytes,
}

#[derive(Debug, Clone)]
pub enum StoredFile {
    Content(Bytes),
    Redirect(String),
}

impl StoredFile {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Content(content) => content.len(),
            Self::Redirect(_) => 0,
        }
    }

    fn response(self) -> Response {
        match self {
            Self::Content(content) => content.into_response(),
            Self::Redirect(url) => (StatusCode::FOUND, [(header::LOCATION, url)]).into_response(),
        }
    }
}

/// The response to a download, and whether it is complete. `Err`: the request ends without a file.
pub(crate) fn response<T, R>(end: Completion<StoredFile, R>) -> Result<(Response, bool), Completion<T, R>> {
    match end {
        Completion::Respond(Ok(file)) => Ok((file.response(), true)),
        Completion::Truncate(Ok(StoredFile::Content(content))) => Ok((pipeline::half(content), false)),
        Completion::Truncate(Ok(redirect @ StoredFile::Redirect(_))) => Ok((redirect.response(), true)),
        Completion::Respond(Err(error)) => Err(Completion::Respond(Err(error))),
        Completion::Truncate(Err(error)) => Err(Completion::Truncate(Err(error))),
        Completion::ProxyError(code) => Err(Completion::ProxyError(code)),
        Completion::Garbage => Err(Completion::Garbage),
        Completion::Reset => Err(Completion::Reset),
    }
}

#[derive(Debug, Default)]
pub(crate) struct MultipartForm {
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) files: Vec<Upload>,
}

/// `None`: not a multipart form.
pub(crate) fn parse_form(content_type: &str, body: &Bytes) -> Option<MultipartForm> {
    let boundary = content_type.strip_prefix("multipart/form-data")?.split_once("boundary=")?.1;
    let delimiter = format!("--{}", boundary.trim_matches('"'));
    let mut form = MultipartForm::default();
    let mut at = find(body, delimiter.as_bytes(), 0)? + delimiter.len();
    let between = format!("\r\n{delimiter}");
    while body.get(at..at + 2)? == b"\r\n" {
        let head_end = find(body, b"\r\n\r\n", at)?;
        let head = String::from_utf8_lossy(&body[at..head_end]).into_owned();
        let end = find(body, between.as_bytes(), head_end + 4)?;
        let content = body.slice(head_end + 4..end);
        let name = parameter(&head, "name")?;
        match parameter(&head, "filename") {
            Some(filename) => {
                let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type: "));
                let mime = kind.unwrap_or_default().to_owned();
                form.files.push(Upload { field: name, name: filename, mime, content });
            }
            None => form.fields.push((name, String::from_utf8_lossy(&content).into_owned())),
        }
        at = end + between.len();
    }
    Some(form)
}

fn parameter(head: &str, name: &str) -> Option<String> {
    let disposition = head.lines().find(|line| line.starts_with("Content-Disposition: form-data"))?;
    let (_, value) = disposition.split_once(&format!("; {name}=\""))?;
    value.split_once('"').map(|(value, _)| value.to_owned())
}

fn find(body: &[u8], pattern: &[u8], from: usize) -> Option<usize> {
    body.get(from..)?.windows(pattern.len()).position(|window| window == pattern).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_form_without_changing_bytes() {
        let body = b"--B\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n7\r\n--B\r\n\
            Content-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\
            \x00\r\n\xff\r\n--B--\r\n";
        let MultipartForm { fields, files } =
            parse_form("multipart/form-data; boundary=B", &Bytes::from_static(body)).unwrap();
        assert_eq!(fields, [("chat_id".to_owned(), "7".to_owned())]);
        assert_eq!((files.len(), files[0].field.as_str()), (1, "photo"));
        assert_eq!((files[0].name.as_str(), files[0].mime.as_str()), ("a.png", "image/png"));
        assert_eq!(&files[0].content[..], b"\x00\r\n\xff");
        assert!(parse_form("application/json", &Bytes::from_static(b"{}")).is_none());
        assert!(parse_form("multipart/form-data; boundary=B", &Bytes::from_static(b"--B\r\nhalf")).is_none());
    }
}
