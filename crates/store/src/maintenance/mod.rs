//! Whole-database maintenance: retention, archives, size, backups and integrity checks.

pub(crate) mod archive;
pub(crate) mod backup;
pub(crate) mod page_check;
pub(crate) mod retention;
pub(crate) mod size;
pub(crate) mod verify;
