//! The parsers of a delivery, in the order of its checks.

use axum::http::HeaderMap;

use super::{parse, signature};
use crate::Secret;

pub(in crate::webhook) fn read(secret: &Secret, headers: &HeaderMap, body: &[u8]) -> bool {
    let verified = signature::verify(secret, headers, body, 1_700_000_000);
    let _id = parse::delivery_id(headers, verified.as_ref().map(|it| it.scheme));
    let payload = parse::payload(headers, body);
    let _names = payload.as_ref().map(|payload| parse::event_names(headers, payload));
    payload.is_some() || verified.is_some()
}
