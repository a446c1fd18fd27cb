//! HTTP routes, and what they bound and serve.

pub(crate) mod authentication;
mod bindings;
pub(crate) mod concurrency;
pub(crate) mod files;
mod manage;
pub(crate) mod provisioning;
pub(crate) mod routes;
