//! What Petasos remembers. Every SQL statement of the product is in this crate; no policy is.
//!
//! One [`Store`] writes, in [`Group`]s of jobs that share a synced commit; any number of [`Reader`]s look.
//! What a crash leaves behind is written above each table in `schema/001.sql`.
//!
//! | module | tables |
//! |---|---|
//! | `inbox`, `seen`, `whereabouts` | inbox, seen, signatures, cursors |
//! | `turns` | turns |
//! | `outbox` | outbox |
//! | `dead_chats`, `topics` | their namesakes |
//! | `transcript`, `search` | messages, words |
//! | `routing`, `binding`, `sessions`, `failures`, `legacy` | routing, sessions, failures |
//! | `questions` | questions, approved |
//! | `jobs`, `occurrences` | their namesakes |
//! | `unreadable`, `pairing`, `completions`, `processes`, `delegations`, `logins`, `todos`, `meta` | their namesakes |
//! | `archive`, `size` | archives; conversations that leave, and what the file takes |
//! | `apply` | the writes of a decision, spread over the above |
//! | `backup`, `salvage`, `verify`, `page_check` | whole files: consistent copies, rows out of damaged pages, checks |
//! | `begin`, `boot` | how a turn, and how a process, starts: one job over all of them |
//!
//! A connector has a file of its own (`schema/connector.sql`): see [`connector`].

mod apply;
mod archive;
mod backup;
mod begin;
mod binding;
mod boot;
mod cards;
mod checkpoint;
mod clock;
mod completions;
pub mod connector;
mod dead_chats;
mod delegations;
mod error;
mod failures;
mod files;
mod group;
mod inbox;
mod jobs;
mod legacy;
mod logins;
mod meta;
mod occurrences;
mod open;
mod outbox;
mod page_check;
mod pairing;
mod processes;
mod questions;
mod rate_limits;
mod reattach;
mod retention;
mod routing;
mod runs;
mod salvage;
mod schema;
mod search;
mod seen;
mod sessions;
mod size;
mod suspects;
mod todos;
mod topics;
mod transcript;
mod turns;
mod unreadable;
mod value;
mod verify;
mod whereabouts;

pub use archive::{Archivable, Archive, Restored, Unused};
pub use backup::{Checked, Progress, check_copy};
pub use begin::{Batch, Begun};
pub use binding::{Binding, Bound};
pub use boot::{Booted, Candidate, Candidates, Found, GivenUp, Marked, Report, Terms};
pub use cards::{CardQuery, SessionCard};
pub use checkpoint::{Checkpointer, LogProbe, LogState};
pub use clock::local_time;
pub use completions::{Completion, CompletionId, CompletionState};
pub use delegations::DelegationRow;
pub use error::{Error, OpenError, Result};
pub use files::Detached;
pub use group::{Group, Place, Reader, Reads, Store, Tx};
pub use inbox::{Accepted, Backlog, Pending};
pub use legacy::Imported;
pub use logins::{Login, Token};
pub use occurrences::{Occurrence, RunState};
pub use outbox::{Claimed, Head, OutboxCounts, Owed, Recovered, Stagehand};
pub use page_check::CheckPiece;
pub use pairing::PairingAnswer;
pub use processes::{ProcessEnd, ProcessRow};
pub use questions::{Allowed, QuestionRow};
pub use retention::Pruned;
pub use routing::{EntryPage, FinalizeFrom, Finalized, RoutingState};
pub use runs::{NewRun, Repeat, RunEnd, RunRow};
pub use salvage::{Cause, Loss, LossNotice, Range, Salvage, mark_restored};
pub use schema::KNOWN as SCHEMA;
pub use search::Hit;
pub use sessions::{Ended, SessionRow};
pub use size::DatabaseSize;
pub use suspects::{Hold, Scope, Suspect};
pub use transcript::{RowState, Said, Undone};
pub use turns::Journaled;
pub use unreadable::Unread;
pub use verify::Damage;
pub use whereabouts::{Stage, Whereabouts};
