//! The sandbox with real programs: what they must not reach, and what they must be able to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod attacks;
mod corpus;
mod cost;
mod everyday;
mod kernels;
mod launching;
mod machine;
