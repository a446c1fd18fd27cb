//! How a gateway finds its connector and authenticates.

pub mod address;
pub mod token;
