//! Lines and frames of the socket.

pub(crate) mod field;
pub mod frame;
pub mod lines;
pub(crate) mod surrogate;
