//! What a connector remembers, in a file of its own: who its gateways are, what is owed to each instance, and who may
//! speak where. A connector's database has none of the gateway's tables but `cursors`, `meta` and `rate_limits`, and the
//! other way round; whoever opened it knows which it is.
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

pub use belong::Policy;
pub use chats::{Chat, Request};
pub use media::Media;
pub use queue::{Arrival, DeadLetter, Depth};
pub use records::{Gateway, GatewayRow, Holdings, Instance};
pub use tokens::Redeemed;
pub use vault::Permission;
