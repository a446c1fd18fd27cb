//! Parses header lines, an empty line and a body as a delivery.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::request::fuzzing;
use crate::Secret;

/// Whether the body is readable or the signature is valid.
pub fn delivery(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\n\n").unwrap_or(("", &text));
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?))
    };
    let headers: HeaderMap = head.lines().filter_map(header).collect();
    fuzzing::read(&Secret::new("secret"), &headers, body.as_bytes())
}
