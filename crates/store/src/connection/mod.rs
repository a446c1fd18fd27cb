//! Connections to the database file: one writer, any number of readers, and the files below them.

pub(crate) mod checkpoint;
pub(crate) mod files;
mod group;
pub(crate) mod open;
pub(crate) mod reattach;

pub use group::{Group, Reader, Reads, Store, StoreLocation, Tx};
