//! Tolerant reading and atomic writing of files.

pub(super) mod read;
pub(super) mod write;

#[cfg(test)]
pub(super) mod testing;
