//! Publishes the gateway's state in `gateway_state.json`.
//!
//! Single writer. State changes are written at once; the number of active turns may lag. Nothing depends on the file: a write
//! error is logged once. After a crash the file holds the last state, so readers must check that the process is alive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::link::{Link, State as LinkState};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock;
use crate::home::Durable;
use crate::home::process::ProcessRecord;
use crate::home::state::{self, PlatformState, StateFile};
use crate::lifecycle::Lifecycle;
use crate::lifecycle::gate::{AcceptGate, LifecycleSnapshot};
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::any_changed;
use crate::links::supervisor::LinkHandle;

const DEBOUNCE: Duration = Duration::from_millis(100);
const SHUTDOWN_REFRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct StatePublisher {
    home: PathBuf,
    own: ProcessRecord,
    gate: AcceptGate,
    shutdown: ShutdownHandle,
    links: Vec<LinkHandle>,
    drain_timeout: Duration,
    last: Option<StateFile>,
    /// Write even without changes.
    stale: bool,
    error_logged: bool,
}

impl StatePublisher {
    pub(crate) fn new(
        lifecycle: &Lifecycle,
        home: PathBuf,
        own: ProcessRecord,
        links: Vec<LinkHandle>,
    ) -> Self {
        Self {
            home,
            own,
            gate: lifecycle.gate.clone(),
            shutdown: lifecycle.shutdown.clone(),
            links,
            drain_timeout: lifecycle.lifetime.drain_timeout,
            last: None,
            stale: false,
            error_logged: false,
        }
    }

    /// Runs until the listeners close. The caller writes the final state with [`StatePublisher::write`].
    pub(crate) async fn run(mut self) -> Self {
        let shutdown = self.shutdown.clone();
        let mut editions = self.gate.watch();
        loop {
            editions.mark_unchanged();
            self.links.iter_mut().for_each(|link| link.link.mark_unchanged());
            self = self.write().await;
            let leaving = self.gate.snapshot().leaving.is_some();
            petasos_runtime::select! {
                () = shutdown.stopped() => return self,
                _ = editions.changed() => {}
                () = any_changed(&mut self.links) => {}
                () = clock::sleep(SHUTDOWN_REFRESH), if leaving => self.stale = true,
            }
            self.debounce(&mut editions).await;
        }
    }

    /// Debounces changes, except changes of state.
    async fn debounce(&self, editions: &mut watch::Receiver<u64>) {
        let published_state = self.last.as_ref().map(|last| last.state);
        let gathered = async {
            while Some(self.gate.snapshot().state) == published_state {
                // The sender lives in the gate.
                let _ = editions.changed().await;
            }
        };
        let _ = tokio::time::timeout(DEBOUNCE, gathered).await;
    }

    /// Writes the state if it has changed.
    pub(crate) async fn write(mut self) -> Self {
        let now = self.now();
        if !std::mem::take(&mut self.stale) && self.last.as_ref().is_some_and(|last| is_unchanged(last, &now))
        {
            return self;
        }
        let state_changed = self.last.as_ref().is_none_or(|last| last.state != now.state);
        let durable = if state_changed { Durable::Synced } else { Durable::Loose };
        let home = self.home.clone();
        let written = now.clone();
        let done = petasos_runtime::blocking(move || state::write(&home, &written, durable)).await;
        match done {
            Ok(Ok(())) => self.error_logged = false,
            Ok(Err(error)) if !self.error_logged => {
                self.error_logged = true;
                tracing::warn!(%error, "gateway_state.json cannot be written");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        self.last = Some(now);
        self
    }

    fn now(&self) -> StateFile {
        let situation = self.gate.snapshot();
        StateFile {
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
    let failure = link.failure();
    let lack = link.partial_outages.first();
    let next = match link.state {
        LinkState::Waiting { until, .. } => Some(until),
        LinkState::Connecting { .. } | LinkState::Up { .. } | LinkState::Fatal { .. } | LinkState::Paused => {
            None
        }
    };
    PlatformState {
        state: link.status(),
        error_code: failure.map(|failure| &failure.code).or(lack.map(|lack| &lack.code)).cloned(),
        error_message: failure
            .map(|failure| failure.reason.clone())
            .or_else(|| link.retry_reason.clone())
            .or_else(|| lack.map(|lack| format!("{} unavailable: {}", lack.part, lack.reason))),
        error_class: failure.map(|failure| failure.class.as_str()),
        attempts: link.attempts,
        next_retry_at: next,
        updated_at: clock::now(),
    }
}

/// Equality, ignoring timestamps.
fn is_unchanged(one: &StateFile, other: &StateFile) -> bool {
    let timeless = |it: &StateFile| {
        let platforms = it.platforms.clone().into_iter();
        let still = |(name, state)| (name, PlatformState { updated_at: Millis(0), ..state });
        StateFile { updated_at: Millis(0), platforms: platforms.map(still).collect(), ..it.clone() }
    };
    timeless(one) == timeless(other)
}

/// Kind, owner and holders of the drain.
pub(crate) fn drain(situation: &LifecycleSnapshot) -> Option<Value> {
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
