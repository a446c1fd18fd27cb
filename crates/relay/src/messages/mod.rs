//! Payloads of the frames.

pub mod action;
pub mod context;
pub mod descriptor;
pub mod event;
pub mod forward;
