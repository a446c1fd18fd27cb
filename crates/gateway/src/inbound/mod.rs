//! Inbound messages: access check, commit to the inbox, media download.

pub(crate) mod downloads;
pub(crate) mod ingest;
