//! Sessions: binding, the routing table and transcripts.

mod binding;
mod routing;
mod transcripts;
