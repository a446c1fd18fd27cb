//! Starting, draining, stopping, restarting: what the gateway does about its own life.
//!
//! | file | decides |
//! |---|---|
//! | `machine` | what is published, and whether a turn may start |
//! | `leave` | why we stop, what wins, and how the process ends |
//! | `hold` | who keeps a drain from being over |
//! | `marker` | whether a drain marker counts |
//! | `verdict` | whether a marker that names a process means us |
//! | `boots` | whether sessions may be resumed without being asked |
//! | `storm` | how long a start waits after too many others |
//! | `strength` | whether a secret is worth its name |

pub mod boots;
mod hold;
mod leave;
mod machine;
pub mod marker;
pub mod storm;
pub mod strength;
pub mod verdict;

pub use hold::{Doing, Holder, LONGEST_EXTENSION, wait_until};
pub use leave::{From, How, Leave, hung_after, stop_budget};
pub use machine::{Claim, Closed, Door, Drain, Event, Lifecycle, State};
pub use marker::stamp;
