//! Lines and frames.

pub mod field;
pub mod frame;
pub mod lines;
pub(crate) mod surrogate;
