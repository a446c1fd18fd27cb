//! The egress proxy against real programs, hostile clients and network namespaces.

#![expect(clippy::disallowed_methods, reason = "the other ends of connections are outside the program")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod bridge;
mod hostile;
mod limits;
mod logs;
mod programs;
mod smuggling;
mod support;
