//! Starting, draining, stopping, restarting: what the gateway does about its own life.
//!
//! | file | decides |
//! |---|---|
//! | `machine` | what is published, and whether a turn may start |
//! | `leave` | why we stop, what wins, and how the process ends |
//! | `hold` | who keeps a drain from being over |
//! | `marker` | whether a drain marker counts |
//! | `verdict` | whether a marker that names a process means us |
//! | `boots` | whether suspects are resumed at once or one by one |
//! | `storm` | how long suspects wait after too many starts |
//! | `suspects` | which turns a crash is blamed on, and what their chats are told |
//! | `strength` | whether a secret is worth its name |

pub mod boots;
mod hold;
mod leave;
mod machine;
pub mod marker;
pub mod storm;
pub mod strength;
pub mod suspects;
pub mod verdict;

pub use hold::{Doing, Holder, LONGEST_EXTENSION, wait_until};
pub use leave::{From, How, Leave, hung_after, stop_budget};
pub use machine::{Claim, Closed, Door, Drain, Event, Lifecycle, State};
pub use marker::stamp;
