//! Sessions: which conversation a message belongs to, and when it starts afresh.
//!
//! An `Entry` binds a routing key to the transcript now in use. Everything here decides on entries passed
//! in; the store keeps them, the gateway knows what time it is. Times in an entry are local and naive, as
//! in the files we share; the journal and the transcript use `Millis`.

mod entry;
mod freshness;
mod id;
mod key;
mod local;
mod policy;
mod resolve;
mod resume;
mod stuck;

pub use entry::{Entry, ModelOverride, ResetReason, ResumeReason, Routing};
pub use freshness::{Interruption, Reader, Timestamp, Window, last_activity};
pub use id::{is_valid_id, is_valid_key, session_id};
pub use key::{KeyOptions, platform_of, session_key};
pub use local::{Civil, LocalTime};
pub use policy::{Mode, Policies, ResetPolicy};
pub use resolve::{Ask, Background, EndReason, Lookup, Resolution, Row, resolve};
pub use resume::{
    Circumstances, CrashRecovery, Fate, clear_resume_pending, fate, mark_resume_pending, reset,
    resumes_by_itself, suspend, suspend_recently_active, switch,
};
pub use stuck::FailureCounts;
