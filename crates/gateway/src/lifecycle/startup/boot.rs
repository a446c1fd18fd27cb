//! Takes over from the previous process, in one commit of the store, and logs what was found.

use std::sync::Arc;

use petasos_core::{Millis, Route, Source};
use petasos_store::{BootPolicy, BootReport, BootResult, Error as StoreError, HomeState, Tx};

use crate::background::delegation;
use crate::inbound::ingest::{IngestRules, is_authorised};
use crate::links::channels::Channels;
use crate::sessions::questions;
use crate::storage::salvage;

#[derive(Debug, Clone)]
pub(crate) struct RecoveryContext {
    pub(crate) rules: Arc<IngestRules>,
    pub(crate) channels: Arc<Channels>,
    /// Home channels, for notices to the owner.
    pub(crate) homes: Vec<Route>,
}

pub(crate) fn take_over(
    tx: &Tx<'_>,
    found: &HomeState,
    terms: &BootPolicy,
    context: &RecoveryContext,
    now: Millis,
) -> Result<BootResult, StoreError> {
    // First, because everything below reads open turns and waiting messages.
    let unreadable = tx.give_up_unreadable(now)?;
    // Before any resume: messages that may have been answered are not resumed.
    let lost = tx.loss_notice(terms.limits, now)?;
    // Before the takeover: turns of children are not resumed.
    delegation::recover_interrupted(tx, terms.limits, now)?;
    // Scheduled runs are exempt from the access check: it was made when the job was created.
    let may_go_on = |tx: &Tx<'_>, source: &Source| {
        Ok(context.channels.is_scheduled(source.platform) || is_authorised(tx, &context.rules, source)?)
    };
    let mut booted = tx.take_over(found, terms, may_go_on, now)?;
    booted.report.lost_turns += unreadable.turns;
    booted.report.unreadable += unreadable.messages;
    booted.due.extend(questions::mark_all_lost(tx, &context.channels, now)?);
    if let Some(notice) = lost {
        booted.due.extend(salvage::announce(tx, &context.channels, &context.homes, &notice, now)?);
    }
    Ok(booted)
}

pub(crate) fn log_report(report: &BootReport) {
    match &report.imported {
        Some(Some(found)) => {
            tracing::info!(imported = found.imported, skipped = found.skipped, "sessions.json imported")
        }
        Some(None) => tracing::warn!("sessions.json is unreadable and was not imported"),
        None => {}
    }
    if report.doubtful > 0 {
        tracing::warn!(
            items = report.doubtful,
            "sends of unknown outcome will be repeated, marked as possible duplicates"
        );
    }
    for (count, what) in [
        (report.lost_turns, "unreadable turns"),
        (report.stranded, "accepted messages without a turn"),
        (report.unreadable, "unreadable accepted messages"),
    ] {
        if count > 0 {
            tracing::error!(count, what, "given up; `petasos doctor` lists them");
        }
    }
    if report.skipped_rows > 0 {
        tracing::error!(rows = report.skipped_rows, "skipped unreadable stored rows");
    }
    if report.interrupted > 0 || report.recent > 0 {
        tracing::warn!(
            turns = report.interrupted,
            blamed = report.blamed,
            others = report.recent,
            "the previous process ended without a graceful shutdown"
        );
    }
    if report.stuck > 0 {
        tracing::warn!(sessions = report.stuck, "sessions interrupted too often in a row were reset");
    }
    for (turn, fate) in &report.given_up {
        tracing::warn!(%turn, ?fate, "gave up an interrupted turn");
    }
}

/// Treats an unreadable row as absent, so that a damaged row does not keep a session from starting.
pub(crate) fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Unreadable(what)) => {
            tracing::error!(what, "skipped an unreadable stored row");
            Ok(None)
        }
        read => read,
    }
}
