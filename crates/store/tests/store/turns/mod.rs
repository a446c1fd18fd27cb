//! Questions, runs and delegations.

mod questions;
mod runs;
