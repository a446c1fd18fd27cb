//! Discord adapter against a fake gateway and REST API.

mod backfill;
mod fixture;
mod menu;
mod receive;
mod send;
