//! HTTP routes, and what they bound and serve.

mod authentication;
mod bindings;
pub(crate) mod concurrency;
pub(crate) mod files;
pub(crate) mod manage;
pub(crate) mod provisioning;
pub(crate) mod routes;
