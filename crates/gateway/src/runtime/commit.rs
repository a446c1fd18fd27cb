//! Names of all commits, and a way for tests to kill the process at each of them.
//!
//! `tests/sweep/` of the program has a case for each; a new name without a case does not build. Only with debug assertions.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Commit {
    /// Takeover from the previous process.
    TakeOver,
    /// A platform's batch and its cursor.
    AcceptBatch,
    /// A message from the page, the terminal or the API.
    Submit,
    /// Completions become inbox messages.
    Completions,
    /// Lanes that waited for a link are due again.
    WakeLanes,
    Begin,
    /// A turn advances or ends.
    Step,
    /// A reply without a turn.
    Reply,
    /// Downloaded files or a new text of an inbox message.
    Rewrite,
    ResumeTurn,
    ClearSuspect,
    /// A message that cannot be processed is given up.
    GiveUp,
    /// The outcome of an item, and the claim of the next one.
    Claim,
    /// The next part of an item is about to be sent.
    Sending,
    PartSent,
    /// The outcome of an item whose lane stops or waits.
    Outcome,
    Postpone,
    DeadLetter,
    StagePreview,
    PreviewShown,
    DropPreview,
    /// A message arrived from a dead chat.
    ChatAlive,
    /// A shutdown marks the running turns.
    MarkInterrupted,
    AnnounceShutdown,
    /// A shutdown records which turns it interrupted.
    ConfirmInterrupted,
    DropBanners,
    Notification,
    Forward,
    /// Notices about outages and other texts for the owner.
    Outage,
    /// Runs of scheduled jobs start.
    CronBegin,
    /// A finished run is reported.
    CronReport,
    /// A job is created, changed or removed.
    CronJob,
    /// An event of a background process.
    Process,
    /// Changes of messages, pairings and logins by the owner.
    Operator,
    /// A question is asked, answered or withdrawn.
    Question,
    Todo,
    Run,
    /// A delegation batch starts or ends.
    Delegation,
    /// A topic was created or removed.
    Topic,
    /// Penalties are stored or expire.
    RateLimit,
    Connector,
    /// Old rows are removed.
    Sweep,
    /// A conversation is removed; its archive is on disk.
    Archive,
    /// Writes nothing: completes only if the database accepts commits.
    WriteProbe,
}

impl Commit {
    pub const ALL: [Self; 44] = [
        Self::TakeOver,
        Self::AcceptBatch,
        Self::Submit,
        Self::Completions,
        Self::WakeLanes,
        Self::Begin,
        Self::Step,
        Self::Reply,
        Self::Rewrite,
        Self::ResumeTurn,
        Self::ClearSuspect,
        Self::GiveUp,
        Self::Claim,
        Self::Sending,
        Self::PartSent,
        Self::Outcome,
        Self::Postpone,
        Self::DeadLetter,
        Self::StagePreview,
        Self::PreviewShown,
        Self::DropPreview,
        Self::ChatAlive,
        Self::MarkInterrupted,
        Self::AnnounceShutdown,
        Self::ConfirmInterrupted,
        Self::DropBanners,
        Self::Notification,
        Self::Forward,
        Self::Outage,
        Self::CronBegin,
        Self::CronReport,
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
        Self::WriteProbe,
    ];
}

/// Before or after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nothing of it is on disk.
    Before,
    /// It is on disk, and its callers have not resumed.
    After,
}

/// `PETASOS_DIE_AT` names the commit: `Begin:After`, or `Begin:After:2` for its second time.
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
        // SIGKILL: no cleanup runs.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) const fn may_die_at(_commit: Commit, _side: Side) {}

/// A simulation may refuse the commit, or kill the process before it.
#[cfg(feature = "simulation")]
pub(crate) fn about_to_commit(commits: &[Commit]) -> Result<(), petasos_store::Error> {
    super::simulation::before(commits)
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn about_to_commit(_commits: &[Commit]) -> Result<(), petasos_store::Error> {
    Ok(())
}

/// A simulation checks what is on disk, and may kill the process before the callers resume.
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
    fn all_lists_every_commit_once() {
        let named: std::collections::HashSet<_> = Commit::ALL.into_iter().collect();
        assert_eq!(named.len(), Commit::ALL.len());
        // Fails if a variant is added after the last one.
        assert_eq!(Commit::WriteProbe as usize + 1, Commit::ALL.len());
    }
}
