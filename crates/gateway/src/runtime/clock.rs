//! Time and randomness, from the crate that a simulation can replace.

pub use petasos_runtime::clock::{now, replace, sleep_until};
pub use petasos_runtime::random::{bytes as random, roll, secret};
