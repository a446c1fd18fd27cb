//! What the frames carry.

pub mod action;
pub mod context;
pub mod descriptor;
pub mod event;
pub mod forward;
