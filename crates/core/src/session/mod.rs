//! Sessions: which transcript a message continues and when a new one starts.
//!
//! An `Entry` binds a session key to the current transcript. Functions here decide on entries passed in; the store keeps
//! them. Times in an entry are local and without a zone, as in the shared files; journal and transcript use `Millis`.

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
pub use freshness::{FreshnessWindow, Interruption, ReaderKind, Timestamp, last_activity};
pub use id::{is_valid_id, is_valid_key, session_id};
pub use key::{KeyOptions, platform_of, session_key};
pub use local::{Civil, LocalTime};
pub use policy::{ResetMode, ResetPolicies, ResetPolicy};
pub use resolve::{BackgroundWork, EndReason, Lookup, Resolution, ResolveMode, TranscriptState, resolve};
pub use resume::{
    CrashRecovery, ResumeConditions, ResumeDecision, clear_resume_pending, mark_resume_pending,
    resume_decision, resumes_by_itself, suspend, suspend_recently_active, switch,
};
pub use stuck::FailureCounts;
