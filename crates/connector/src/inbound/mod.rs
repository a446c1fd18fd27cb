//! Inbound events: from the adapters to the queues.

pub(crate) mod routing;
pub(crate) mod sink;
