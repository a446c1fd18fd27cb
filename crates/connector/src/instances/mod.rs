//! The instances: their tasks, queues and wake calls.

pub(crate) mod counters;
pub(crate) mod queue;
pub(crate) mod task;
pub(crate) mod wake;
