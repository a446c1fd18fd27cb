//! Time and randomness, which a simulation can replace.

pub use petasos_runtime::clock::{now, replace, sleep_until};
pub use petasos_runtime::random::{bytes as random, hex as random_hex, roll, secret};
