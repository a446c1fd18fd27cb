//! Fake services on loopback, for tests, benchmarks and trials by hand.
//!
//! They follow the public protocols and know nothing of our own types, so a mistake of ours is not
//! repeated here. Each fake runs on a runtime of its own and is driven by a handle whose methods block:
//! a test needs no async. Everything received is recorded, and everything can be made to go wrong.
//!
//! * [`Discord`]: the gateway and the REST API, with sessions that can be resumed.
//! * [`Telegram`]: the Bot API, with a user's view of each chat.
//! * [`Slack`]: the Web API and Socket Mode, with several workspaces.
//! * [`hooks`]: a service that delivers webhooks, and delivers them again.
//! * [`Connector`]: the server's end of the relay, for one gateway.
//! * [`relay`]: a gateway that dials a connector and does what it is told, and the address that wakes it.
//! * [`Model`]: chat completions as OpenAI, Anthropic and Ollama speak them.

pub mod connector;
pub mod crowd;
pub mod discord;
mod files;
mod gate;
pub mod hooks;
mod keep;
mod line;
pub mod model;
pub mod port;
pub mod relay;
mod road;
mod rules;
mod server;
mod shared;
pub mod slack;
pub mod telegram;
mod watched;

pub use connector::Connector;
pub use discord::Discord;
pub use files::Upload;
pub use gate::Gate;
pub use keep::Keep;
pub use model::Model;
pub use slack::Slack;
pub use telegram::Telegram;

/// By the clock of the runtime, which may stand still; the machine's outside of one.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
