//! Files in the home that are interfaces to other programs: dashboards, supervisors, the command line, the next process.
//!
//! | file | holds |
//! |---|---|
//! | `drain` | `.drain_request.json`: the drain marker |
//! | `process`, `pid` | process identity; `gateway.pid` |
//! | `peers` | `.gateway-takeover.json`, `.gateway-planned-stop.json`: the next signal is intended |
//! | `state` | `gateway_state.json`: the published state |
//! | `heartbeat` | `state/gateway.heartbeat`: the event loop runs |
//! | `starts`, `boots` | `gateway-starts.log`, `gateway/restart_loop.json`: too many starts |
//! | `restart` | restart notes: who requested a restart, and who is notified |
//! | `directory` | `channel_directory.json`, `channel_aliases.json`: chats by name |
//! | `api_key` | the API key |
//! | `env` | `.env`, in which `/sethome` replaces its own lines |
//! | `bot_lock` | one process per bot token; outside the home, shared by all homes |
//! | `permissions` | repairs modes that other users can read |
//! | `clean`, `counts` | `.clean_shutdown`, `.restart_failure_counts`: result of the last shutdown |
//!
//! Other programs may write these files at any time, so readers ignore invalid contents and writers replace files
//! atomically (`write`). A crash leaves the old or the new contents, and possibly an unused temporary file
//! (`.<name>.<random>.tmp`). Everything here blocks; `core::lifecycle` interprets the contents.

pub mod api_key;
pub mod counts;
pub mod directory;
pub mod env;
mod files;
pub mod heartbeat;
mod markers;
pub mod permissions;
mod processes;
pub mod state;

pub use files::write::Durable;
pub(crate) use files::write::create;
pub use markers::{clean, drain, peers, restart};
pub use processes::{boots, bot_lock, pid, process, starts};
