//! Bugs that a simulation plants.
//!
//! Each is a switch at the place where the code does it right. A build without the feature `simulation` has no switch:
//! [`planted`] is a constant there.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), allow(dead_code, reason = "named by a simulation only"))]
pub enum Planted {
    /// A copy says nothing of being one.
    UnmarkedCopy,
    /// What the store refused is acknowledged.
    IgnoresRefusals,
    /// The platform's cursor is committed by itself, before the messages.
    CursorFirst,
    /// A turn ends without the messages that were merged into it.
    ForgetsMerged,
    /// The end of the turn is one commit, its answer in the outbox another.
    AnswerAfterEnd,
    /// After a crash every tool whose result is missing is run again.
    RepeatsTools,
    /// The result of an abandoned call is given to the turn that runs now.
    HearsOldWork,
    /// A preview is shown before the intent is stored.
    PreviewFirst,
    /// Answers go to the chat that wrote last.
    CurrentChat,
    /// A session that waits for the end of a drain forgets its queue.
    ForgetsHeld,
    /// A link gives up after three attempts.
    GivesUpLink,
    /// A completion counts as delivered before it is a message.
    DeliveredFirst,
    /// The queue of a session has no end.
    EndlessQueue,
    /// The run of a job is one commit, its next moment another.
    RunsAgain,
    /// Suspects are held, and nothing resumes them.
    ForgetsSuspects,
    /// Messages that no tool result took along are dropped at the end of the turn.
    LosesSteering,
    /// Turns that were interrupted are not resumed when their platform is connected.
    ForgetsCandidates,
    /// The old preview stays beside the new message that takes its place.
    LeavesPreview,
    /// The answer of a job is enqueued in one commit, and marked as delivered in another.
    TellsTwice,
    /// The page is answered before its message is committed.
    AcksBeforeCommit,
    /// Turns of people begin during a drain.
    BeginsWhileDraining,
    /// A step that the store refused counts as stored.
    RefusedStep,
    /// The gateway acknowledges a frame before it has committed the message.
    AcksFirst,
    /// The connector grants going idle, and goes on delivering.
    GrantsWithoutFlip,
    /// The connector deletes an entry of its queue when it sends it, before the acknowledgement.
    DeletesOnDelivery,
    /// The connector commits the platform's cursor before it has enqueued the messages.
    CursorBeforeQueue,
    /// The connector forgets request ids, and repeats what it has done under one.
    RepeatsRequests,
    /// A question that timed out counts as consent.
    SilenceIsConsent,
    /// A summary hides the rows behind those that it stands for.
    HidesTooMuch,
    /// After a restart a message is let in without its files.
    ForgetsFiles,
    /// A run is one commit, the name of its request another.
    RepeatsRuns,
    /// A gateway that can store nothing stays connected, until the connector dead-letters its messages.
    StaysConnected,
}

/// Whether the simulation of this thread has this bug.
#[cfg(feature = "simulation")]
pub fn planted(what: Planted) -> bool {
    crate::simulation::planted() == Some(what)
}

/// Whether the simulation of this thread has this bug.
#[cfg(not(feature = "simulation"))]
pub const fn planted(_what: Planted) -> bool {
    false
}
