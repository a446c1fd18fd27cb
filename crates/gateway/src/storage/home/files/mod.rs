//! Tolerant readers and whole-file writers.

pub(super) mod read;
pub(super) mod write;

#[cfg(test)]
pub(super) mod testing;
