//! Fuzz targets: one function for each parser of bytes from outside, and a mutator for stable toolchains.
//!
//! `TARGETS` is the only list. A target returns whether the bytes were accepted, so that the tests can check that the seeds in
//! `corpus/` still reach the parser behind the first check. A panic is a bug.

mod database;
mod mutator;
mod targets;

pub use mutator::Mutator;

#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]) -> bool,
    /// Takes milliseconds instead of microseconds.
    pub slow: bool,
}

pub const TARGETS: &[Target] = &[
    fast("telegram_update", petasos_platforms::telegram::fuzzing::update),
    fast("discord_event", petasos_platforms::discord::fuzzing::event),
    fast("slack_frame", petasos_platforms::slack::fuzzing::frame),
    fast("relay_event", petasos_platforms::relay::fuzzing::event),
    fast("webhook_delivery", petasos_platforms::webhook::fuzzing::delivery),
    fast("relay_frame", targets::relay_frame),
    fast("api_body", petasos_web::fuzzing::api_body),
    fast("model_stream", petasos_agent::fuzzing::stream),
    fast("mcp_message", petasos_agent::mcp::fuzzing::message),
    fast("program_output", targets::program_output),
    fast("shell_command", targets::shell_command),
    slow("markdown", targets::markdown),
    slow("configuration", targets::configuration),
    slow("database", database::damaged),
];

const fn fast(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    Target { name, run, slow: false }
}

const fn slow(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    Target { name, run, slow: true }
}
