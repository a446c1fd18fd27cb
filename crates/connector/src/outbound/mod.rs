//! Gateway requests, performed on the platforms.

pub(crate) mod actions;
pub(crate) mod notice;
pub(crate) mod requests;
pub(crate) mod vault;
