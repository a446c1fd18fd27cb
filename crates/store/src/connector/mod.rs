//! The connector's database: its gateways, the queue of each instance, and the routing of chats and people. Of the tables of a
//! gateway's database it has only `cursors`, `meta` and `rate_limits`; the caller decides which kind of database it opens.
//!
//! | module | tables |
//! |---|---|
//! | `queue` | queue, dead, seen, and what an instance is at: idle, epoch |
//! | `records` | tenants, instances, gateways |
//! | `tokens` | enrollments, identities |
//! | `belong` | authors, scopes, links, policies |
//! | `chats` | chats, requests |
//! | `media` | media |
//! | `vault` | vault |

mod belong;
mod chats;
mod media;
mod queue;
mod records;
mod tokens;
mod vault;

/// In the home of a connector.
pub const DATABASE: &str = "connector.db";

pub use belong::Policy;
pub use chats::{Chat, Request};
pub use media::Media;
pub use queue::{Arrival, DeadLetter, Depth};
pub use records::{Gateway, GatewayRow, Holdings, Instance};
pub use tokens::Redeemed;
pub use vault::Permission;
