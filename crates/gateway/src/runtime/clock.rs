//! Time and randomness, which a simulation can replace.

pub use petasos_runtime::clock::{file_time, monotonic, now, replace, sleep, sleep_until};
pub use petasos_runtime::random::{bytes as random, hex as random_hex, roll, secret};
