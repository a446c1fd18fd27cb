//! The connector's database: tenants and gateways, the queue of each instance, and routing.
//!
//! It shares only the tables `cursors`, `meta`, `rate_limits` and `unreadable` with a gateway's database; the caller
//! decides which kind it opens.
//!
//! | module | tables |
//! |---|---|
//! | `queue` | queue, dead, seen; the columns idle and epoch of instances |
//! | `tenants` | tenants, instances, gateways |
//! | `tokens` | enrollments, identities |
//! | `routing` | authors, principals, scopes, links, policies |
//! | `chats` | chats, requests |
//! | `media` | media |
//! | `vault` | vault |

mod chats;
mod media;
mod queue;
mod routing;
mod tenants;
mod tokens;
mod vault;

pub const DATABASE: &str = "connector.db";

pub use chats::{InstanceChat, RequestState};
pub use media::Media;
pub use queue::{Arrival, DeadLetter, QueueDepth};
pub use routing::ChatPolicy;
pub(crate) use tenants::UNCLAIMED_TENANT;
pub use tenants::{GatewayCredentials, GatewayRow, Holdings, Instance};
pub use tokens::EnrollmentOutcome;
pub use vault::Permission;
