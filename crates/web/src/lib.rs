//! The HTTP face of the gateway: the owner's chat page, its API, and the control socket.
//!
//! Owns nothing. Every request is answered from [`petasos_gateway::Handle`], so a crash here leaves nothing
//! behind: what was answered with 202 is on disk, what was not is asked for again by the client under the
//! same id.
//!
//! Two doors lead to the same API. [`public`] is for TCP: a browser comes in with a cookie, and is checked
//! for the name it asked for and the page it came from; a program may show a token instead ([`Doors`]).
//! [`control`] is for the owner's unix socket, where the file mode is the check; it also offers what only
//! the owner may do.

mod api;
mod chat;
mod connection;
mod cookie;
mod drain;
mod error;
mod extract;
mod guard;
mod headers;
mod jobs;
mod origin;
mod owner;
mod page;
mod post;
mod profile;
mod read;
mod router;
mod serve;
mod situation;
mod status;
mod stream;
mod token;
mod verbs;

pub use api::{ApiKey, ApiOptions, Scope};
pub use origin::Options;
pub use router::{control, public};
pub use serve::{bind_unix, serve_tcp, serve_unix};
pub use token::Doors;
