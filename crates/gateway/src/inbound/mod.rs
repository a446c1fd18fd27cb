//! Messages on their way in: access check, commit to the inbox, media download.

pub(crate) mod downloads;
pub(crate) mod ingest;
