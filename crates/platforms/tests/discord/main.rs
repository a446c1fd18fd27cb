//! Discord: the adapter against a fake gateway and REST API, over real sockets.

mod gaps;
#[path = "../listening/mod.rs"]
mod listening;
mod menu;
mod receive;
mod rig;
mod send;
