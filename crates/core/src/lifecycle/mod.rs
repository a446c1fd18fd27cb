//! Lifecycle of the gateway process: start, drain, shutdown, restart, crash recovery.
//!
//! | file | decides |
//! |---|---|
//! | `machine` | the published state, and whether a turn may start |
//! | `shutdown` | the precedence of shutdown reasons, and the exit code |
//! | `drain_wait` | which turns a drain waits for |
//! | `marker` | whether a drain marker is in force |
//! | `process_marker` | whether a marker with a process id is for this process |
//! | `restart_breaker` | whether suspects are resumed at once or one by one |
//! | `respawn` | how long suspects wait after too many starts |
//! | `suspects` | which turns a crash counts against |
//! | `secret_strength` | whether a secret is strong enough |

mod drain_wait;
mod machine;
pub mod marker;
pub mod process_marker;
pub mod respawn;
pub mod restart_breaker;
pub mod secret_strength;
mod shutdown;
pub mod suspects;

pub use drain_wait::{ActiveTurn, MAX_EXTENSION, TurnActivity, wait_until};
pub use machine::{Drain, Event, GateState, Lifecycle, NotAccepting, State, TurnOrigin};
pub use marker::stamp;
pub use shutdown::{RestartMethod, RestartOrigin, ShutdownReason, hung_after, stop_budget};
