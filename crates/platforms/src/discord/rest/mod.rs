//! REST requests.

pub(in crate::discord) mod api;
mod channels;
mod check;
pub(in crate::discord) mod menu;
mod react;
mod send;
mod threads;
pub(in crate::discord) mod tokens;
