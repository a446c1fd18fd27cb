//! The egress proxy against real programs, hostile clients and network namespaces.

mod bridge;
mod hostile;
mod limits;
mod logs;
mod programs;
mod smuggling;
mod support;
