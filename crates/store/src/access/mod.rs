//! Web logins and pairing: who may talk to the agent.

pub(crate) mod logins;
pub(crate) mod pairing;
