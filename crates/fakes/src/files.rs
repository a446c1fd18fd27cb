//! Files: those that people can fetch, and those that come in with a form.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::road::{self, End};

/// A file that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The form's name for it.
    pub field: String,
    pub name: String,
    pub mime: String,
    pub content: Bytes,
}

/// A file that a client may fetch.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Content(Bytes),
    /// It is said to be at this address.
    Elsewhere(String),
}

impl Stored {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Content(content) => content.len(),
            Self::Elsewhere(_) => 0,
        }
    }

    fn response(self) -> Response {
        match self {
            Self::Content(content) => content.into_response(),
            Self::Elsewhere(url) => (StatusCode::FOUND, [(header::LOCATION, url)]).into_response(),
        }
    }
}

/// The answer to a download, and whether it is whole; what is no file ends like any other request.
pub(crate) fn served<T, R>(end: End<Stored, R>) -> Result<(Response, bool), End<T, R>> {
    match end {
        End::Answer(Ok(stored)) => Ok((stored.response(), true)),
        End::Half(Ok(Stored::Content(content))) => Ok((road::half(content), false)),
        End::Half(Ok(elsewhere @ Stored::Elsewhere(_))) => Ok((elsewhere.response(), true)),
        End::Answer(Err(refusal)) => Err(End::Answer(Err(refusal))),
        End::Half(Err(refusal)) => Err(End::Half(Err(refusal))),
        End::Page(code) => Err(End::Page(code)),
        End::Garbage => Err(End::Garbage),
        End::Reset => Err(End::Reset),
    }
}

/// What a form holds.
#[derive(Debug, Default)]
pub(crate) struct Form {
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) files: Vec<Upload>,
}

/// `None`: it is no form.
pub(crate) fn form(content_type: &str, body: &Bytes) -> Option<Form> {
    let boundary = content_type.strip_prefix("multipart/form-data")?.split_once("boundary=")?.1;
    let line = format!("--{}", boundary.trim_matches('"'));
    let mut form = Form::default();
    let mut at = find(body, line.as_bytes(), 0)? + line.len();
    let between = format!("\r\n{line}");
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

fn find(body: &[u8], what: &[u8], from: usize) -> Option<usize> {
    body.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_taken_apart_and_bytes_stay_bytes() {
        let body = b"--B\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n7\r\n--B\r\n\
            Content-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\
            \x00\r\n\xff\r\n--B--\r\n";
        let Form { fields, files } =
            form("multipart/form-data; boundary=B", &Bytes::from_static(body)).unwrap();
        assert_eq!(fields, [("chat_id".to_owned(), "7".to_owned())]);
        assert_eq!((files.len(), files[0].field.as_str()), (1, "photo"));
        assert_eq!((files[0].name.as_str(), files[0].mime.as_str()), ("a.png", "image/png"));
        assert_eq!(&files[0].content[..], b"\x00\r\n\xff");
        assert!(form("application/json", &Bytes::from_static(b"{}")).is_none());
        assert!(form("multipart/form-data; boundary=B", &Bytes::from_static(b"--B\r\nhalf")).is_none());
    }
}
