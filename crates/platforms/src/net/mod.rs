//! HTTP, downloads, uploads, web pages and WebSockets.

pub mod download;
pub mod http;
pub mod page;
pub(crate) mod upload;
pub(crate) mod websocket;
