//! Process start and stop.

mod suspects;
mod takeover;
