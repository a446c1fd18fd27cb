//! Conversations, memory and scheduled jobs.

pub mod chat;
pub mod cron;
pub mod memory;
pub mod sessions;
