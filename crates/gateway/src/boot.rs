//! How a process takes over from the one before it: one transaction, before anything runs.
//!
//! The journal knows which turns were cut off; nothing is guessed from times. If we die in the middle, nothing of
//! it has happened, and the next start does the same.

use std::collections::HashSet;
use std::time::Duration;

use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::session::{
    Circumstances, CrashRecovery, Entry, Fate, ResumeReason, Window, fate, last_activity, resumes_by_itself,
};
use petasos_core::turn::{self, Event, Limits, Turn};
use petasos_core::{InboxId, Millis, SessionKey, Source, TurnId};
use petasos_store::{Error as StoreError, Tx, local_time};

use crate::ingest::{Rules, welcome};
use crate::resume::{Candidate, Candidates, Marked, platform_of};

const IMPORTED: &str = "sessions_json_imported";
/// Open turns that do not run, as their numbers: a stop left them so, or nobody has taken them up yet.
const LEFT_OPEN: &str = "turns_left_open";
/// Which restart was last answered with "back again".
const TOLD: &str = "restart_told";
/// A session used this shortly before a crash may have been in use.
const RECENT: Duration = Duration::from_secs(120);

/// What lies in the home besides the database.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The stop before was complete: nobody was interrupted.
    pub(crate) clean: bool,
    /// A `sessions.json`, to be taken over once.
    pub(crate) sessions: Option<String>,
    /// A `.restart_failure_counts`.
    pub(crate) counts: Option<String>,
    /// Who is to be told that we are back, and the restart that was.
    pub(crate) back: Option<(String, Vec<Draft>)>,
}

/// What goes into the decisions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) crash_recovery: CrashRecovery,
    pub(crate) window: Window,
    pub(crate) limits: Limits,
}

/// What the new process has to do.
#[derive(Debug, Default)]
pub(crate) struct Booted {
    /// Lanes with something to send.
    pub(crate) due: Vec<String>,
    pub(crate) candidates: Candidates,
    pub(crate) left_open: HashSet<TurnId>,
}

/// Notes which turns are open and do not run: if the process dies, it is not because of them.
pub(crate) fn leave_open(tx: &Tx<'_>, turns: impl IntoIterator<Item = TurnId>) -> Result<(), StoreError> {
    let numbers: Vec<_> = turns.into_iter().map(|turn| turn.0.to_string()).collect();
    tx.put_meta(LEFT_OPEN, &numbers.join(","))
}

pub(crate) fn take_over(
    tx: &Tx<'_>,
    found: &Found,
    terms: &Terms<'_>,
    now: Millis,
) -> Result<Booted, StoreError> {
    import(tx, found)?;
    tidy_outbox(tx)?;
    let lost = tx.end_unreadable_turns(now)?;
    if lost > 0 {
        tracing::error!(turns = lost, "turns that cannot be read are given up");
    }
    give_up(tx, tx.stranded()?, "accepted messages whose turn is over without them", now)?;
    give_up(tx, tx.unreadable_inbox()?, "accepted messages that cannot be read", now)?;
    let left_open = left_open(tx)?;
    // Before marking: a mark made now would make everything look recent.
    let fresh = fresh_turns(tx, terms.window, now)?;
    // Likewise: who was merely used shortly before a crash is marked for the next message, not for a turn of ours.
    let marked = tx.pending_resumes()?;
    if !found.clean {
        after_a_crash(tx, &left_open, terms, now)?;
    }
    let stuck = tx.suspend_stuck()?;
    if !stuck.is_empty() {
        tracing::warn!(sessions = stuck.len(), "interrupted too often in a row; they start afresh");
    }
    let candidates = candidates(tx, &fresh, &marked, terms, now)?;
    leave_open(tx, tx.open_turns()?.into_iter().map(|turn| turn.id))?;
    tell(tx, found, now)?;
    let due = tx.heads()?.into_iter().map(|head| head.lane).collect();
    Ok(Booted { due, candidates, left_open })
}

fn import(tx: &Tx<'_>, found: &Found) -> Result<(), StoreError> {
    if tx.meta(IMPORTED)?.is_none() {
        tx.put_meta(IMPORTED, "yes")?;
        match found.sessions.as_deref().map(|text| tx.import_sessions(text)).transpose()? {
            Some(Some(found)) => {
                tracing::info!(taken = found.taken, skipped = found.skipped, "sessions.json taken over")
            }
            Some(None) => tracing::warn!("sessions.json is not readable and was left alone"),
            None => {}
        }
        if let Some(counts) = &found.counts {
            tx.import_failure_counts(counts)?;
        }
    }
    Ok(())
}

fn tidy_outbox(tx: &Tx<'_>) -> Result<(), StoreError> {
    tx.drop_banners()?;
    let recovered = tx.recover_sending()?;
    if recovered.doubtful > 0 {
        tracing::warn!(items = recovered.doubtful, "sends of unknown outcome will be repeated with a mark");
    }
    Ok(())
}

/// Should never find anything; if it does, it is said and listed, not passed over.
fn give_up(tx: &Tx<'_>, inbox: Vec<InboxId>, what: &str, at: Millis) -> Result<(), StoreError> {
    if inbox.is_empty() {
        return Ok(());
    }
    tracing::error!(count = inbox.len(), what, "given up; `petasos doctor` lists them");
    tx.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Dead, at }], at)
}

fn left_open(tx: &Tx<'_>) -> Result<HashSet<TurnId>, StoreError> {
    let noted = tx.meta(LEFT_OPEN)?.unwrap_or_default();
    Ok(noted.split(',').filter_map(|number| number.parse().ok().map(TurnId)).collect())
}

/// An open turn runs again: from now on a crash is its own.
pub(crate) fn taken_up(tx: &Tx<'_>, turn: TurnId) -> Result<(), StoreError> {
    let mut open = left_open(tx)?;
    if !open.remove(&turn) {
        return Ok(());
    }
    leave_open(tx, open)
}

/// Open turns whose conversation moved, or was marked, within the window.
fn fresh_turns(tx: &Tx<'_>, window: Window, now: Millis) -> Result<HashSet<TurnId>, StoreError> {
    let mut fresh = HashSet::new();
    for turn in tx.open_turns()? {
        let marked = readable(tx.entry(&turn.key))?.and_then(|entry| entry.last_resume_marked_at);
        let mark_age = marked.map(|at| local_time(now).since(at));
        let history = readable(tx.history(&turn.session, 1).map(Some))?.unwrap_or_default();
        let history: Vec<_> = history.into_iter().map(|said| said.message).collect();
        let moved = last_activity(&history).unwrap_or(turn.started_at).max(turn.started_at);
        if window.holds(Some(now.since(moved))) || (marked.is_some() && window.holds(mark_age)) {
            fresh.insert(turn.id);
        }
    }
    Ok(fresh)
}

fn after_a_crash(
    tx: &Tx<'_>,
    left_open: &HashSet<TurnId>,
    terms: &Terms<'_>,
    now: Millis,
) -> Result<(), StoreError> {
    let cut_off: Vec<Turn> =
        tx.open_turns()?.into_iter().filter(|turn| !left_open.contains(&turn.id)).collect();
    let mut keys = Vec::new();
    for turn in cut_off {
        tx.mark_resume_pending(&turn.key, ResumeReason::RestartInterrupted, now)?;
        keys.push(turn.key);
    }
    tx.count_crash(&keys)?;
    let changed = tx.suspend_recently_active(terms.crash_recovery, RECENT, now)?;
    if !keys.is_empty() || changed > 0 {
        tracing::warn!(turns = keys.len(), others = changed, "the last process was cut off");
    }
    Ok(())
}

fn candidates(
    tx: &Tx<'_>,
    fresh: &HashSet<TurnId>,
    marked: &[Entry],
    terms: &Terms<'_>,
    now: Millis,
) -> Result<Candidates, StoreError> {
    let mut found = Candidates::new();
    // Whose turn goes on takes its waiting messages along.
    let mut going_on: HashSet<SessionKey> = HashSet::new();
    for turn in tx.open_turns()? {
        let entry = readable(tx.entry(&turn.key))?;
        // Who asked, and not who opened the conversation: it may be shared.
        let author = readable(tx.pending(InboxId::from(turn.id)))?.map(|pending| pending.inbound.source);
        let author = author.or_else(|| entry.as_ref().and_then(|entry| entry.origin.clone()));
        let circumstances = Circumstances {
            fresh: fresh.contains(&turn.id),
            welcome: is_welcome(tx, terms.rules, author.as_ref())?,
        };
        match fate(entry.as_ref(), circumstances) {
            Fate::Resume => {
                going_on.insert(turn.key.clone());
                let written = !tx.queued(&turn.key)?.is_empty();
                found
                    .entry(turn.route.platform)
                    .or_default()
                    .push(Candidate::Turn { key: turn.key, written });
            }
            fate @ (Fate::Stuck | Fate::Stale | Fate::Unwelcome) => {
                tracing::warn!(turn = %turn.id, ?fate, "an interrupted turn is given up");
                let notice = fate.notice().map(str::to_owned);
                let (_, decision) = turn::step(turn, terms.limits, now, Event::GivenUp { notice });
                tx.apply(&decision.writes, now)?;
            }
        }
    }
    for key in tx.keys_with_work()? {
        if let Some(platform) = platform_of(&tx.queued(&key)?)
            && going_on.insert(key.clone())
        {
            found.entry(platform).or_default().push(Candidate::Waiting(key));
        }
    }
    for entry in marked {
        // As it is now: it may have been suspended since. A session that ever had a turn here needs none of ours: the
        // journal would show it open. What is left comes from another gateway.
        let Some(entry) = readable(tx.entry(&entry.session_key))? else { continue };
        let Some(source) = entry.origin.clone() else { continue };
        if going_on.contains(&entry.session_key)
            || tx.has_turns(&entry.session_key)?
            || !resumes_by_itself(&entry, terms.window, local_time(now))
            || !is_welcome(tx, terms.rules, Some(&source))?
        {
            continue;
        }
        let platform = source.platform;
        found.entry(platform).or_default().push(Candidate::Marked(Box::new(Marked {
            entry,
            source,
            window: terms.window,
        })));
    }
    Ok(found)
}

/// What cannot be read is as good as not there: one damaged row must not keep the gateway from starting.
pub(crate) fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Unreadable(what)) => {
            tracing::error!(what, "a stored row cannot be read and is passed over");
            Ok(None)
        }
        read => read,
    }
}

/// Somebody we do not know any more is not written to.
fn is_welcome(tx: &Tx<'_>, rules: &Rules, source: Option<&Source>) -> Result<bool, StoreError> {
    source.map_or(Ok(true), |source| welcome(tx, rules, source))
}

/// "Back again", once per restart.
fn tell(tx: &Tx<'_>, found: &Found, now: Millis) -> Result<(), StoreError> {
    let Some((restart, drafts)) = &found.back else { return Ok(()) };
    if tx.meta(TOLD)?.as_ref() == Some(restart) {
        return Ok(());
    }
    tx.put_meta(TOLD, restart)?;
    let owed: Vec<_> =
        drafts.iter().filter(|it| it.route.delivery == Delivery::Push).cloned().map(Write::Owe).collect();
    tx.apply(&owed, now)
}
