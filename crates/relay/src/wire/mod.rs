//! Lines and frames of the socket.

pub mod field;
pub mod frame;
pub mod lines;
pub(crate) mod surrogate;
