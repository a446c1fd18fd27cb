//! Access, identity and protection against hostile input.

pub mod access;
pub mod credentials;
pub mod net;
pub mod pairing;
pub mod person;
pub mod redaction;
pub mod scan;
pub mod secret;
