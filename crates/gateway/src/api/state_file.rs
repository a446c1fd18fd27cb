//! `gateway_state.json`: what we are doing, for whoever cannot ask us.
//!
//! One writer. A change of state is on disk at once; how many are at work may lag by a moment. Nothing depends on
//! the file: one that cannot be written is said once, and disturbs no turn. After a crash it says what was true
//! last, so readers check whether the process lives.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::link::{Link, State as LinkState};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock;
use crate::home::Durable;
use crate::home::process::Record;
use crate::home::state::{self, PlatformState, Published};
use crate::lifecycle::Lifecycle;
use crate::lifecycle::gate::{Gate, Situation};
use crate::lifecycle::shutdown::Stopper;
use crate::links::any_changed;
use crate::links::supervisor::LinkHandle;

/// Changes within this time become one write.
const GAP: Duration = Duration::from_millis(100);
/// While we leave, readers want to see that we are at it.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Publisher {
    home: PathBuf,
    own: Record,
    gate: Gate,
    stopper: Stopper,
    links: Vec<LinkHandle>,
    drain_timeout: Duration,
    /// What the file says now.
    last: Option<Published>,
    /// It is to be renewed though nothing has changed.
    stale: bool,
    complained: bool,
}

impl Publisher {
    pub(crate) fn new(lifecycle: &Lifecycle, home: PathBuf, own: Record, links: Vec<LinkHandle>) -> Self {
        Self {
            home,
            own,
            gate: lifecycle.gate.clone(),
            stopper: lifecycle.stopper.clone(),
            links,
            drain_timeout: lifecycle.lifetime.drain_timeout,
            last: None,
            stale: false,
            complained: false,
        }
    }

    /// Until the ways in are closed; the last word is [`Publisher::write`] by whoever ends the process.
    pub(crate) async fn run(mut self) -> Self {
        let stopper = self.stopper.clone();
        let mut editions = self.gate.watch();
        loop {
            editions.mark_unchanged();
            self.links.iter_mut().for_each(|link| link.link.mark_unchanged());
            self = self.write().await;
            let leaving = self.gate.situation().leaving.is_some();
            petasos_runtime::select! {
                () = stopper.stopped() => return self,
                _ = editions.changed() => {}
                () = any_changed(&mut self.links) => {}
                () = tokio::time::sleep(LEAVING), if leaving => self.stale = true,
            }
            self.gather(&mut editions).await;
        }
    }

    /// Lets changes gather for a moment; a change of state is not kept waiting.
    async fn gather(&self, editions: &mut watch::Receiver<u64>) {
        let told = self.last.as_ref().map(|last| last.state);
        let gathered = async {
            while Some(self.gate.situation().state) == told {
                // The sender lives in the gate.
                let _ = editions.changed().await;
            }
        };
        let _ = tokio::time::timeout(GAP, gathered).await;
    }

    /// Writes what has changed, if anything has.
    pub(crate) async fn write(mut self) -> Self {
        let now = self.now();
        if !std::mem::take(&mut self.stale) && self.last.as_ref().is_some_and(|last| same(last, &now)) {
            return self;
        }
        let state_changed = self.last.as_ref().is_none_or(|last| last.state != now.state);
        let durable = if state_changed { Durable::Synced } else { Durable::Loose };
        let (home, written) = (self.home.clone(), now.clone());
        let done = petasos_runtime::blocking(move || state::write(&home, &written, durable)).await;
        match done {
            Ok(Ok(())) => self.complained = false,
            Ok(Err(error)) if !self.complained => {
                self.complained = true;
                tracing::warn!(%error, "gateway_state.json cannot be written");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        self.last = Some(now);
        self
    }

    fn now(&self) -> Published {
        let situation = self.gate.situation();
        Published {
            record: self.own.clone(),
            state: situation.state,
            exit_reason: situation.exit_reason.clone(),
            restart_requested: situation.restart_requested,
            active_agents: situation.active() as u64,
            platforms: self.platforms(),
            drain: drain(&situation),
            restart_drain_timeout: Some(self.drain_timeout.as_secs_f64()),
            updated_at: clock::now(),
        }
    }

    fn platforms(&self) -> BTreeMap<String, PlatformState> {
        let known = self.links.iter().map(|link| (link.name.to_owned(), platform(&link.link.borrow())));
        known.collect()
    }
}

fn platform(link: &Link) -> PlatformState {
    let (failure, lack) = (link.failure(), link.lacks.first());
    let next = match link.state {
        LinkState::Waiting { until, .. } => Some(until),
        LinkState::Connecting { .. } | LinkState::Up { .. } | LinkState::Fatal { .. } | LinkState::Paused => {
            None
        }
    };
    PlatformState {
        state: link.published(),
        error_code: failure.map(|failure| &failure.code).or(lack.map(|lack| &lack.code)).cloned(),
        error_message: failure
            .map(|failure| failure.reason.clone())
            .or_else(|| link.trouble.clone())
            .or_else(|| lack.map(|lack| format!("without {}: {}", lack.what, lack.reason))),
        error_class: failure.map(|failure| failure.class.as_str()),
        attempts: link.attempts,
        next_retry_at: next,
        updated_at: clock::now(),
    }
}

/// Whether they differ in nothing but their times.
fn same(one: &Published, other: &Published) -> bool {
    let timeless = |it: &Published| {
        let platforms = it.platforms.clone().into_iter();
        let still = |(name, state)| (name, PlatformState { updated_at: Millis(0), ..state });
        Published { updated_at: Millis(0), platforms: platforms.map(still).collect(), ..it.clone() }
    };
    timeless(one) == timeless(other)
}

/// Which drain it is, and whose.
pub(crate) fn drain(situation: &Situation) -> Option<Value> {
    if let Some(leaving) = &situation.leaving {
        return Some(json!({
            "kind": if leaving.why.is_restart() { "restart" } else { "shutdown" },
            "since": leaving.since, "deadline": leaving.deadline, "holders": situation.holders,
        }));
    }
    let drain = situation.drain.as_ref()?;
    Some(json!({
        "kind": "external", "principal": drain.principal, "reason": drain.reason, "since": drain.since,
        "requested_at": drain.requested_at, "holders": situation.holders,
    }))
}
