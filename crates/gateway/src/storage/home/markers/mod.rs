//! Marker files: a drain request, an intended signal, a restart in progress, a clean shutdown.

pub mod clean;
pub mod drain;
pub mod peers;
pub mod restart;
