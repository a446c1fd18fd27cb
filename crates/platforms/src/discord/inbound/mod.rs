//! Incoming events: parsing, message filter, channel cache.

pub(in crate::discord) mod channel_cache;
pub(in crate::discord) mod filter;
pub(crate) mod interaction;
pub(in crate::discord) mod parse;
