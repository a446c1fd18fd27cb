//! Checks on the public listener: host, origin, credentials, cookie and response headers.

pub(crate) mod cookie;
pub(crate) mod credentials;
pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod origin;
