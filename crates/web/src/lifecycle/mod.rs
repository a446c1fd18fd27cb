//! Status, drain, restart and stop of the gateway.

pub(crate) mod actions;
pub(crate) mod drain;
pub(crate) mod drain_status;
pub(crate) mod profile;
pub(crate) mod status;
