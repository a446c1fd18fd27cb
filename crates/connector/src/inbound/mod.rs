//! Inbound events: from the adapters to the queues.

mod routing;
pub(crate) mod sink;
