//! Discord: the adapter against a fake gateway and REST API, over real sockets.

mod gaps;
mod menu;
mod receive;
mod rig;
mod send;
