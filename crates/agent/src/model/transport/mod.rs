//! HTTP transport of model calls: connection, stream framing, error classification.

pub(super) mod classify;
pub(super) mod http;
pub(super) mod sse;
