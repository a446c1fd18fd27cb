//! The relay's adapter against a fake connector.

mod auth;
mod framing;
mod idle;
mod link;
mod rig;
mod send;
