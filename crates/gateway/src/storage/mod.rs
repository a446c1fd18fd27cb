//! Storage: the database thread, files of the home, retention and cleanup, copies for older tools.

pub(crate) mod cleanup;
pub(crate) mod database;
pub(crate) mod file_loss;
pub mod home;
pub(crate) mod restart_counts;
pub mod retention;
pub(crate) mod salvage;
pub(crate) mod sessions_json;
pub(crate) mod sweep;
