//! Archives, backups, integrity checks and retention.

mod archive;
mod backups;
mod page_check;
mod retention;
