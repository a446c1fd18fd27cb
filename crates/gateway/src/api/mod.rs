//! The entry points for everything outside the gateway: the handle, API runs, and the published status.

pub(crate) mod handle;
pub(crate) mod runs;
pub(crate) mod state_file;
pub(crate) mod status;
