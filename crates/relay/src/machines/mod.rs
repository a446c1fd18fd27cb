//! State machines of both ends: `channel` and `idle` of the gateway, `session` of the connector.

pub mod channel;
pub mod idle;
pub mod session;

#[cfg(test)]
mod race_tests;
