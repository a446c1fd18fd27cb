//! Every place where something is committed, by name, and how a test ends the process exactly there.
//!
//! `tests/sweep/` of the program has a case for each: a new name without one does not build. Builds without debug
//! assertions know nothing of dying.

/// What a commit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Commit {
    /// A process takes over from the one before it.
    TakeOver,
    /// A platform's batch, with its cursor.
    Take,
    /// A message from the page, the terminal or a program.
    Submit,
    /// Ended background work becomes messages.
    Completions,
    /// What waited for a link may leave.
    WakeLanes,
    /// A turn begins.
    Begin,
    /// A turn goes on, or ends.
    Step,
    /// An answer without a turn, with what it is about.
    Say,
    /// What became of a message's files, or what it was made into.
    Rewrite,
    /// A turn that was found open runs again.
    TakenUp,
    /// A suspect ran for the stable interval.
    ClearSuspect,
    /// A message that cannot be handled is given up.
    GiveUp,
    /// The outcome of one item, and the next one taken.
    Claim,
    /// The next part of an item is handed over.
    Sending,
    PartSent,
    /// What happened to an item whose lane stops or waits.
    Outcome,
    Postpone,
    Bury,
    /// A preview is about to be shown.
    StagePreview,
    PreviewShown,
    DropPreview,
    /// Something arrived in a chat that was taken for dead.
    ChatAlive,
    /// A stop marks whoever is at work.
    MarkAtWork,
    /// Chats hear of a stop.
    Announce,
    /// A stop notes who was cut off.
    CloseBooks,
    DropBanners,
    /// Something is said that nobody asked for.
    Post,
    PassOn,
    /// An outage is told.
    Outage,
    /// Scheduled work begins.
    CronBegin,
    /// Scheduled work is told.
    CronTell,
    /// A job is made, changed or removed.
    CronJob,
    /// A background process begins, starts, ends.
    Process,
    /// What the owner does to messages, pairings and logins.
    Operator,
    /// Somebody is asked, answers, or is not asked any more.
    Question,
    /// The agent's list of what is to be done.
    Todo,
    /// A run that a program asked for.
    Run,
    /// Work is given to subagents, or they have ended.
    Delegation,
    /// A topic was made for an answer, or is gone.
    Topic,
    /// A platform wants us to wait, or such a wait is over.
    RateLimit,
    /// What the other end of the relay keeps.
    Connector,
    /// Old rows go.
    Sweep,
    /// A conversation leaves the database; its archive is on disk.
    Archive,
    /// Whether the database answers.
    Pulse,
}

impl Commit {
    pub const ALL: [Self; 44] = [
        Self::TakeOver,
        Self::Take,
        Self::Submit,
        Self::Completions,
        Self::WakeLanes,
        Self::Begin,
        Self::Step,
        Self::Say,
        Self::Rewrite,
        Self::TakenUp,
        Self::ClearSuspect,
        Self::GiveUp,
        Self::Claim,
        Self::Sending,
        Self::PartSent,
        Self::Outcome,
        Self::Postpone,
        Self::Bury,
        Self::StagePreview,
        Self::PreviewShown,
        Self::DropPreview,
        Self::ChatAlive,
        Self::MarkAtWork,
        Self::Announce,
        Self::CloseBooks,
        Self::DropBanners,
        Self::Post,
        Self::PassOn,
        Self::Outage,
        Self::CronBegin,
        Self::CronTell,
        Self::CronJob,
        Self::Process,
        Self::Operator,
        Self::Question,
        Self::Todo,
        Self::Run,
        Self::Delegation,
        Self::Topic,
        Self::RateLimit,
        Self::Connector,
        Self::Sweep,
        Self::Archive,
        Self::Pulse,
    ];
}

/// Which side of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nothing of it is on disk.
    Before,
    /// It is on disk, and nobody has been told.
    After,
}

/// The place to die at: `Begin:After`, or `Begin:After:2` for the second time.
#[cfg(debug_assertions)]
pub(crate) fn may_die_at(commit: Commit, side: Side) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static PLACE: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let place = PLACE.get_or_init(|| {
        let wish = std::env::var("PETASOS_DIE_AT").ok()?;
        match wish.rsplit_once(':').map(|(place, times)| (place.to_owned(), times.parse())) {
            Some((place, Ok(times))) => Some((place, times)),
            _one => Some((wish, 1)),
        }
    });
    let Some((place, times)) = place else { return };
    if *place == format!("{commit:?}:{side:?}") && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *times {
        // As the kernel would: no goodbye.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) const fn may_die_at(_commit: Commit, _side: Side) {}

/// A simulation may refuse a commit, or end the process before it.
#[cfg(feature = "simulation")]
pub(crate) fn about_to_commit(commits: &[Commit]) -> Result<(), petasos_store::Error> {
    super::simulation::before(commits)
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn about_to_commit(_commits: &[Commit]) -> Result<(), petasos_store::Error> {
    Ok(())
}

/// A simulation sees what is on disk, and may end the process before anybody is told.
#[cfg(feature = "simulation")]
pub(crate) fn has_committed(commits: &[Commit], store: &petasos_store::Reads) {
    super::simulation::after(commits, store);
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn has_committed(_commits: &[Commit], _store: &petasos_store::Reads) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_commit_is_listed_once() {
        let named: std::collections::HashSet<_> = Commit::ALL.into_iter().collect();
        assert_eq!(named.len(), Commit::ALL.len());
        // The last one: whoever adds a name behind it finds this number wrong.
        assert_eq!(Commit::Pulse as usize + 1, Commit::ALL.len());
    }
}
