//! Entry points from outside the gateway: the handle, API runs, the published status.

pub(crate) mod handle;
pub(crate) mod runs;
pub(crate) mod state_file;
pub(crate) mod status;
