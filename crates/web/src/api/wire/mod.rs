//! Request and response types that the handlers share.

pub(crate) mod content;
pub(crate) mod request;
pub(crate) mod response;
