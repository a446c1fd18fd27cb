//! Persistence: the schema, its migrations and every SQL statement of the product. Policy lives in `petasos-core`.
//!
//! One [`Store`] writes, in [`Group`]s of jobs that share a synced commit; any number of [`Reader`]s read. The comment
//! above each table in `schema/` states who writes it and what a crash leaves behind.
//!
//! | module | tables |
//! |---|---|
//! | `inbox` | inbox, seen, signatures, cursors, unreadable |
//! | `outbox` | outbox, dead_chats, topics, rate_limits |
//! | `sessions` | routing, sessions, messages, words, failures, todos |
//! | `turns` | turns, runs, repeats, questions, approved; all writes of a decision |
//! | `background` | jobs, occurrences, processes, delegations, completions |
//! | `access` | pairing, logins, login_links |
//! | `boot` | one job over all of the above, when a process starts or stops |
//! | `maintenance` | archives; retention, size, backups, integrity checks |
//! | `salvage` | copies readable rows out of a damaged file |
//! | `meta` | meta |
//!
//! A connector has its own database (`schema/connector.sql`): see [`connector`].

mod access;
mod background;
mod boot;
mod clock;
mod connection;
pub mod connector;
mod error;
mod inbox;
mod maintenance;
mod meta;
mod outbox;
mod salvage;
mod schema;
mod sessions;
mod turns;
mod value;

pub use access::logins::LoginToken;
pub use access::pairing::PairingReply;
pub use background::completions::{Completion, CompletionId, CompletionState};
pub use background::delegations::DelegationRow;
pub use background::occurrences::{Occurrence, OccurrenceState};
pub use background::processes::{ProcessEnd, ProcessRow};
pub use boot::suspects::{HoldScope, Suspect, SuspectHold};
pub use boot::{
    BootPolicy, BootReport, BootResult, HomeState, MarkedSession, ResumeCandidate, ResumeCandidates,
    UnreadableWork,
};
pub use clock::local_time;
pub use connection::checkpoint::{Checkpointer, LogProbe, LogState};
pub use connection::files::DetachedFile;
pub use connection::{Group, Reader, Reads, Store, StoreLocation, Tx};
pub use error::{Error, OpenError, Result};
pub use inbox::receipts::{MessageReceipt, MessageStage};
pub use inbox::unreadable::UnreadableEvent;
pub use inbox::{Accepted, Backlog, PendingMessage};
pub use maintenance::archive::{Archive, ArchiveCandidate, ArchiveRule, RestoreOutcome};
pub use maintenance::backup::{CheckedCopy, DatabaseProgress, check_copy, finish_connector_copy};
pub use maintenance::page_check::CheckPiece;
pub use maintenance::retention::Pruned;
pub use maintenance::size::DatabaseSize;
pub use maintenance::verify::Damage;
pub use outbox::{EnqueueOutcome, LaneClaim, LaneHead, OutboxCounts, PreviewAction, RecoveredSends};
pub use salvage::{LossCause, LossNotice, LostRange, Salvage, TableLoss, mark_restored};
pub use schema::KNOWN as SCHEMA;
pub use sessions::binding::{BindRequest, BoundSession};
pub use sessions::import::SessionImport;
pub use sessions::routing::{EntryPage, FinalizeFrom, Finalized, RoutingState};
pub use sessions::search::SearchHit;
pub use sessions::summaries::{SessionSummary, SessionSummaryQuery};
pub use sessions::transcript::{RowState, TranscriptRow, UndoResult};
pub use sessions::{SessionEnd, SessionRow};
pub use turns::JournaledTurn;
pub use turns::questions::{ApprovedCategory, QuestionRow};
pub use turns::runs::{IdempotencyMatch, NewRun, RunEnd, RunRow};
pub use turns::start::{StartedTurn, TurnBatch};
