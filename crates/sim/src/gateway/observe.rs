//! Reads the database after every commit and passes it to the checker.

use std::time::Duration;

use petasos_core::outbox::State as Stored;
use petasos_core::turn::Turn;
use petasos_core::{Inbound, InboxId, Millis, Platform};
use petasos_gateway::Commit;
use petasos_store::Reads;

use super::state::State;
use crate::outside::cited;
use crate::promise::Promise;
use crate::truth::Check;

impl State {
    /// After a commit: nobody has been told of it yet.
    pub(super) fn committed(&mut self, commits: &[Commit], store: &Reads) -> Check {
        let lost = |error: petasos_store::Error| (Promise::G1, format!("the store cannot be read: {error}"));
        let newest = store.newest().map_err(lost)?;
        for id in self.newest.0 + 1..=newest.0 {
            let pending = store.pending(InboxId(id)).map_err(lost)?;
            if let Some(pending) = pending {
                self.accepted(InboxId(id), &pending.inbound)?;
            }
        }
        self.newest = self.newest.max(newest);
        if commits.iter().any(claims) {
            for turn in store.open_turns().map_err(lost)? {
                self.drain_holds(&turn, store)?;
                for inbox in &turn.inbox {
                    self.truth.claimed(*inbox, turn.id)?;
                }
            }
        }
        self.figures.held += u64::from(commits.contains(&Commit::ClearSuspect));
        if commits.contains(&Commit::StagePreview) {
            for item in store.items_in(Stored::Streaming, 1_000).map_err(lost)? {
                self.truth.staged(item.id);
            }
        }
        if commits.contains(&Commit::Delegation) {
            for row in store.open_delegations().map_err(lost)? {
                for work in cited(&row.tasks, 'c') {
                    self.truth.dispatched(work);
                }
            }
        }
        self.truth.stranded(store)
    }

    /// No turn of a person begins during a drain.
    fn drain_holds(&self, turn: &Turn, store: &Reads) -> Check {
        let now = self.time();
        let long = |since: Millis| now.since(since) > NOTICED;
        // A full disk delays what began before.
        let drained = self.drained_since.is_some_and(long) && long(self.up_since) && self.plan.full == 0;
        let fresh = !turn.inbox.iter().any(|inbox| self.truth.is_claimed(*inbox));
        if !drained || !fresh {
            return Ok(());
        }
        let first = store.pending(turn.id.into()).ok().flatten();
        let user = first.is_some_and(|it| number_of(&it.inbound).is_some());
        if user {
            return Err((Promise::G6, format!("turn {} starts during a drain", turn.id)));
        }
        Ok(())
    }

    /// A message is in the inbox, whether the process lives to see it or not.
    fn accepted(&mut self, id: InboxId, inbound: &Inbound) -> Check {
        let dedup = &inbound.dedup;
        let text = &inbound.text;
        if let Some(number) = number_of(inbound) {
            if self.world.said[number].inbox.replace(id).is_some() {
                return Err((Promise::G3, format!("[m{number}] was accepted twice")));
            }
            return self.truth.in_order(&self.world, number);
        }
        if inbound.source.platform == Platform::API_SERVER
            && let Some(number) = cited(text, 'r').first()
            && self.world.runs[*number].inbox.replace(id).is_some()
        {
            return Err((Promise::G3, format!("[r{number}] was accepted twice")));
        }
        if dedup.starts_with("completion:") {
            for work in cited(text, 'c') {
                self.world.ended[work].inbox = Some(id);
            }
        }
        if let Some(run) = dedup.strip_prefix("cron:") {
            let number = cited(text, 'j').first().copied().unwrap_or_default();
            return self.truth.job_ran(number, run, id);
        }
        Ok(())
    }
}

/// By then the gateway has seen the marker of a drain, and what began before is on disk.
const NOTICED: Duration = Duration::from_secs(5);

/// Which message of a person it is. A link puts its account before what the platform calls the message.
fn number_of(inbound: &Inbound) -> Option<usize> {
    let said = inbound.dedup.starts_with("bot:") || inbound.dedup.starts_with("relay:bot:");
    let id = inbound.source.message_id.as_deref().filter(|_| said && !inbound.internal)?;
    id.strip_prefix("in")?.parse().ok()
}

/// Whether messages may go into a turn with it.
fn claims(commit: &Commit) -> bool {
    matches!(commit, Commit::Begin | Commit::Step | Commit::TakeOver | Commit::ResumeTurn)
}
