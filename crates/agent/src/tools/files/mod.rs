//! Tools for the files of the workspace.

mod diff;
pub(super) mod patch;
pub(super) mod read;
pub(super) mod search;
pub(super) mod workspace;
pub(super) mod write;
