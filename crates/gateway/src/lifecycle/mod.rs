//! The life of the process: startup, the gate for new turns, heartbeat, drain and shutdown.

pub(crate) mod config;
pub(crate) mod gate;
pub(crate) mod heartbeat;
pub(crate) mod lifetime;
pub(crate) mod marker_watcher;
pub mod sd_notify;
pub(crate) mod shutdown;
pub(crate) mod startup;
