//! Bugs that a simulation plants.
//!
//! Each is a switch at the place where the code does it right. A build without the feature `simulation` has no switch:
//! [`planted`] is a constant there.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), allow(dead_code, reason = "named by a simulation only"))]
pub enum PlantedBug {
    /// A possible duplicate is not marked as one.
    UnmarkedCopy,
    /// A message that the store refused is acknowledged.
    IgnoresRefusals,
    /// The platform's cursor is committed before the messages.
    CursorFirst,
    /// A turn ends without settling the messages merged into it.
    ForgetsMerged,
    /// The end of a turn and its outbox item are separate commits.
    AnswerAfterEnd,
    /// After a crash every tool whose result is missing is run again.
    RepeatsTools,
    /// The result of an abandoned call is applied to the current turn.
    AcceptsStaleResult,
    /// A preview is shown before the intent is stored.
    PreviewFirst,
    /// Answers go to the chat of the last message.
    CurrentChat,
    /// A session that waits for the end of a drain drops its queue.
    DropsHeldQueue,
    /// A link gives up after three attempts.
    AbandonsLink,
    /// A completion counts as delivered before it is a message.
    DeliveredFirst,
    /// The queue of a session is unbounded.
    EndlessQueue,
    /// The run of a job and its next due time are separate commits.
    RunsJobTwice,
    /// Held suspects are never resumed.
    ForgetsSuspects,
    /// Steering messages that no tool result included are dropped at the end of the turn.
    LosesSteering,
    /// Interrupted turns are not resumed when their platform connects.
    ForgetsCandidates,
    /// The old preview is not deleted when a new message replaces it.
    LeavesPreview,
    /// A job's report and its mark "reported" are separate commits.
    ReportsTwice,
    /// The page gets an acknowledgement before the message is stored.
    AcksBeforeCommit,
    /// Turns of people start during a drain.
    BeginsWhileDraining,
    /// A step that the store refused counts as stored.
    RefusedStep,
    /// The gateway acknowledges a frame before it has committed the message.
    AcksFirst,
    /// The connector grants idle and continues to deliver.
    GrantsWithoutFlip,
    /// The connector deletes an entry of its queue when it sends it, before the acknowledgement.
    DeletesOnDelivery,
    /// The connector commits the platform's cursor before it has enqueued the messages.
    CursorBeforeQueue,
    /// The connector forgets request ids, and repeats what it has done under one.
    RepeatsRequests,
    /// A question without an answer in time counts as approved.
    SilenceIsConsent,
    /// A summary hides the rows behind those that it stands for.
    HidesTooMuch,
    /// After a restart a message is admitted without its files.
    ForgetsFiles,
    /// A run and its idempotency key are separate commits.
    RepeatsRuns,
    /// A gateway that can store nothing stays connected, until the connector dead-letters its messages.
    StaysConnected,
    /// Commits are written without a sync.
    UnsyncedCommits,
    /// A file of the home that must survive a power cut is replaced without a sync.
    UnsyncedFiles,
    /// A downloaded file is stored without a sync.
    UnsyncedDownloads,
}

/// Whether the simulation of this thread has this bug.
#[cfg(feature = "simulation")]
pub fn planted(what: PlantedBug) -> bool {
    crate::simulation::planted() == Some(what)
}

/// Whether the simulation of this thread has this bug.
#[cfg(not(feature = "simulation"))]
pub const fn planted(_what: PlantedBug) -> bool {
    false
}
