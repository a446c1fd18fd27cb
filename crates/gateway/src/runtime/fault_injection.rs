//! Promises that a test has this program break, to show that whoever tries them notices.
//!
//! Named by the variable `PETASOS_BREAKS`. Builds without debug assertions know nothing of it.

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A copy says nothing of being one.
    Marks,
    /// What the store refused is acknowledged.
    Refusals,
}

#[cfg(debug_assertions)]
pub(crate) fn breaks(what: Broken) -> bool {
    static WISHES: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let wishes = WISHES.get_or_init(|| std::env::var("PETASOS_BREAKS").unwrap_or_default());
    wishes.split(',').any(|wish| wish == format!("{what:?}"))
}

#[cfg(not(debug_assertions))]
pub(crate) const fn breaks(_what: Broken) -> bool {
    false
}

/// Bugs that a simulation plants, each at the place where this code does it right. Builds without the feature
/// `simulation` know nothing of them.
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
    /// The answer of a job is enqueued in one commit, and marked as told in another.
    TellsTwice,
    /// The page hears that a message is kept before it is.
    AcksBeforeCommit,
    /// Turns of people begin during a drain.
    BeginsWhileDraining,
    /// A step that the store refused counts as stored.
    RefusedStep,
}

#[cfg(feature = "simulation")]
pub(crate) fn planted(what: Planted) -> bool {
    super::simulation::planted() == Some(what)
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn planted(_what: Planted) -> bool {
    false
}

/// For a planted bug: who wrote last, in whichever chat.
#[cfg(feature = "simulation")]
pub(crate) fn wrote_last(inbound: &petasos_core::Inbound) {
    super::simulation::set_current_chat(inbound);
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn wrote_last(_inbound: &petasos_core::Inbound) {}

/// Where a planted bug sends every answer.
#[cfg(feature = "simulation")]
pub(crate) fn current_chat() -> Option<petasos_core::Inbound> {
    planted(Planted::CurrentChat).then(super::simulation::current_chat).flatten()
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn current_chat() -> Option<petasos_core::Inbound> {
    None
}
