//! Taking over from the process before us (`petasos_store`, one commit), and saying what was found.

use std::sync::Arc;

use petasos_core::{Millis, Route, Source};
use petasos_store::{Booted, Error as StoreError, Found, Report, Terms, Tx};

use crate::background::delegation;
use crate::inbound::ingest::{Rules, welcome};
use crate::links::channels::Channels;
use crate::sessions::questions;
use crate::storage::salvage;

/// Who may speak, and where.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) rules: Arc<Rules>,
    pub(crate) channels: Arc<Channels>,
    /// Where the owner is told what happened.
    pub(crate) homes: Vec<Route>,
}

pub(crate) fn take_over(
    tx: &Tx<'_>,
    found: &Found,
    terms: &Terms,
    world: &World,
    now: Millis,
) -> Result<Booted, StoreError> {
    // Everything after it reads open turns and waiting messages.
    let unreadable = tx.give_up_unreadable(now)?;
    // Before anything is taken up: what may have been answered is not.
    let lost = tx.loss_notice(terms.limits, now)?;
    // First: what children left open is not taken up.
    delegation::lose(tx, terms.limits, now)?;
    // Jobs are nobody's words: whoever set one was let in then.
    let may_go_on = |tx: &Tx<'_>, source: &Source| {
        Ok(world.channels.is_scheduled(source.platform) || welcome(tx, &world.rules, source)?)
    };
    let mut booted = tx.take_over(found, terms, may_go_on, now)?;
    booted.report.lost_turns += unreadable.turns;
    booted.report.unreadable += unreadable.messages;
    booted.due.extend(questions::lose(tx, &world.channels, now)?);
    if let Some(notice) = lost {
        booted.due.extend(salvage::announce(tx, &world.channels, &world.homes, &notice, now)?);
    }
    Ok(booted)
}

/// After the commit.
pub(crate) fn tell(report: &Report) {
    match &report.imported {
        Some(Some(found)) => {
            tracing::info!(taken = found.taken, skipped = found.skipped, "sessions.json taken over")
        }
        Some(None) => tracing::warn!("sessions.json is not readable and was left alone"),
        None => {}
    }
    if report.doubtful > 0 {
        tracing::warn!(items = report.doubtful, "sends of unknown outcome will be repeated with a mark");
    }
    for (count, what) in [
        (report.lost_turns, "turns that cannot be read"),
        (report.stranded, "accepted messages whose turn is over without them"),
        (report.unreadable, "accepted messages that cannot be read"),
    ] {
        if count > 0 {
            tracing::error!(count, what, "given up; `petasos doctor` lists them");
        }
    }
    if report.passed_over > 0 {
        tracing::error!(rows = report.passed_over, "stored rows cannot be read and are passed over");
    }
    if report.cut_off > 0 || report.recent > 0 {
        tracing::warn!(
            turns = report.cut_off,
            blamed = report.blamed,
            others = report.recent,
            "the last process was cut off"
        );
    }
    if report.stuck > 0 {
        tracing::warn!(sessions = report.stuck, "interrupted too often in a row; they start afresh");
    }
    for (turn, fate) in &report.given_up {
        tracing::warn!(%turn, ?fate, "an interrupted turn is given up");
    }
}

/// What cannot be read is as good as not there: one damaged row must not keep a session from starting.
pub(crate) fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Unreadable(what)) => {
            tracing::error!(what, "a stored row cannot be read and is passed over");
            Ok(None)
        }
        read => read,
    }
}
