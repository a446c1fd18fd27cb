//! Fake services on loopback, for tests, benchmarks and manual trials.
//!
//! They follow the public protocols and import none of our types, so a mistake of ours is not repeated here. Each
//! fake runs on its own runtime and is driven by a [`Fake`] handle whose methods block. It records every request,
//! and injects faults on demand.
//!
//! * [`Discord`]: the gateway and the REST API, with resumable sessions.
//! * [`Telegram`]: the Bot API, with a user's view of each chat.
//! * [`Slack`]: the Web API and Socket Mode, with several workspaces.
//! * [`hooks`]: a service that delivers webhooks and retries them.
//! * [`Connector`]: the server's end of the relay, for one gateway.
//! * [`relay`]: gateways that dial a connector, and the endpoint that wakes them.
//! * [`Model`]: chat completions in the protocols of OpenAI, Anthropic and Ollama.
//!
//! Features: `telegram`, `model`, and `rest` for the others, which need WebSockets.

#![expect(clippy::disallowed_methods, reason = "the services of the outside world run in real time")]
#![cfg_attr(
    not(any(feature = "telegram", feature = "rest")),
    allow(dead_code, reason = "the model has no rules")
)]

#[cfg(feature = "rest")]
pub mod connector;
#[cfg(feature = "rest")]
pub mod discord;
mod faults;
#[cfg(feature = "rest")]
pub mod hooks;
#[cfg(feature = "model")]
pub mod model;
pub mod port;
#[cfg(feature = "rest")]
pub mod relay;
mod server;
#[cfg(feature = "rest")]
pub mod slack;
#[cfg(feature = "telegram")]
pub mod telegram;
pub mod wait;

#[cfg(feature = "rest")]
pub use connector::Connector;
#[cfg(feature = "rest")]
pub use discord::Discord;
pub use faults::Fault;
pub use faults::gate::Gate;
pub use faults::pipeline::CallOutcome;
#[cfg(feature = "model")]
pub use model::Model;
pub use server::fake::Fake;
pub use server::files::Upload;
pub use server::log::Retention;
#[cfg(feature = "rest")]
pub use slack::Slack;
#[cfg(feature = "telegram")]
pub use telegram::Telegram;

/// The time of the current runtime's clock, which may be paused; outside a runtime, of the system's.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
