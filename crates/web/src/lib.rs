//! HTTP interfaces of the gateway: the chat page with its API, the API for programs, and the control socket.
//!
//! Stateless: every response is computed from [`petasos_gateway::Handle`]. A message or run that was answered with 202
//! is on disk; a client repeats any other request under the same id.
//!
//! * [`public`] serves TCP. A browser authenticates with a cookie and is checked for `Host` and `Origin`; a program may
//!   present a token ([`AccessCredentials`]).
//! * [`control`] serves the owner's unix socket, which its file mode protects, and adds the routes that are restricted
//!   to the owner.

mod api;
mod chat;
mod error;
mod extract;
mod jobs;
mod lifecycle;
mod owner;
mod page;
mod router;
mod security;
mod server;
mod stream;

#[cfg(feature = "fuzzing")]
pub use api::fuzzing;
pub use api::{ApiKey, ApiOptions, Scope};
pub use router::{control, public};
pub use security::credentials::AccessCredentials;
pub use security::origin::PublicOptions;
pub use server::{serve_tcp, serve_unix};
