//! The running gateway: status, drain, stop and restart.

pub mod drain;
mod progress;
pub mod restart;
pub mod resume;
pub mod status;
pub mod stop;
mod wait;
