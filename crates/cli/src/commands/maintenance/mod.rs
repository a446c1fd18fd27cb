//! Installation and upkeep of a home.

pub mod backup;
pub mod config;
pub mod prove;
pub mod service;
pub mod version;
