//! Access to the agent, and lasting approvals.

pub mod approvals;
pub mod open;
pub mod pairing;
