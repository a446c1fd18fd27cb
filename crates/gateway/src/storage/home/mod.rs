//! Files in the home that are contracts with other programs: dashboards, supervisors, the command line, our successor.
//!
//! | file | holds |
//! |---|---|
//! | `drain` | `.drain_request.json`: somebody asks for quiet |
//! | `process`, `pid` | who we are; `gateway.pid` |
//! | `peers` | `.gateway-takeover.json`, `.gateway-planned-stop.json`: the next signal is intended |
//! | `state` | `gateway_state.json`: how we are |
//! | `heartbeat` | `state/gateway.heartbeat`: the event loop turns |
//! | `starts`, `boots` | `gateway-starts.log`, `gateway/restart_loop.json`: too many starts |
//! | `restart` | who asked for a restart, and who is to be told |
//! | `directory` | `channel_directory.json`, `channel_aliases.json`: chats by name |
//! | `api_key` | what programs show to use the API |
//! | `env` | `.env`, of which `/sethome` writes its own lines |
//! | `bot_lock` | which gateway of this machine uses a bot; the one file that lies beside all homes |
//! | `clean`, `counts` | `.clean_shutdown`, `.restart_failure_counts`: how the last stop went |
//!
//! Anybody may write anything into these files, at any time. So every reader takes what makes sense and goes on
//! without the rest, and every writer replaces a file as a whole (`write`). A crash at any point leaves the old
//! contents or the new ones, and perhaps a temporary file (`.<name>.<random>.tmp`) that nobody reads.
//! Everything here blocks; what the contents mean is decided in `core::lifecycle`.

pub mod api_key;
pub mod counts;
pub mod directory;
pub mod env;
mod files;
pub mod heartbeat;
mod markers;
mod processes;
pub mod state;

pub use files::write::Durable;
pub(crate) use files::write::create;
pub use markers::{clean, drain, peers, restart};
pub use processes::{boots, bot_lock, pid, process, starts};
