//! The simulated process: starting the shipped gateway, and what its end means.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use petasos_agent::ModelConfig;
use petasos_core::access::Access;
use petasos_core::lifecycle::{ShutdownReason, stop_budget};
use petasos_core::link;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{
    Config, Error, ExitInfo, Handle, IdleSettings, Lifetime, Settings, StartError, Streaming, SuspendMethod,
};
use petasos_platforms::Adapter;
use petasos_store::{Error as StoreError, Reader};

use super::adapter::Simulated;
use super::model::Model;
use super::state::{Event, Outside, Stage, State};
use crate::case::Idling;
use crate::outside::Class;
use crate::promise::Promise;
use crate::relay::gateway_adapters;

/// The reason of a process that ends because it is idle; see `links/idle.rs`.
const NOTHING_TO_DO: &str = "nothing to do";
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

impl Outside {
    /// A process starts.
    pub(super) fn boot(&self) {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Down) {
            return;
        }
        state.asleep = false;
        state.life += 1;
        state.heard.clear();
        state.stage = Stage::Starting;
        state.home.start();
        state.note("the process starts");
        let simulation = state.simulation.clone();
        let process = state.process();
        let ahead = state.ahead;
        let life = state.life;
        drop(state);
        simulation.set_clock(process, ahead);
        let outside = self.clone();
        drop(simulation.spawn_in(process, async move { outside.live(life).await }));
    }

    /// From start to end, unless it is killed.
    async fn live(self, life: u32) {
        let config = self.config();
        match petasos_gateway::start(config).await {
            Ok((handle, running)) => {
                self.started(life, handle);
                let end = running.wait().await;
                self.ended(&end);
            }
            Err(error) => self.not_started(&error),
        }
    }

    fn started(&self, life: u32, handle: Handle) {
        let mut state = self.lock();
        state.note(&format!("process {life} is up"));
        state.stage = Stage::Up(handle);
        state.up_since = state.time();
        let reader = Reader::open(state.home.path().join(petasos_gateway::DATABASE));
        let check = match reader {
            Ok(reader) => state.truth.started(&state.world, &reader),
            Err(error) => Err((Promise::G1, format!("the database cannot be read: {error}"))),
        };
        drop(state);
        self.check(check);
    }

    fn ended(&self, end: &ExitInfo) {
        let mut state = self.lock();
        state.figures.stops += 1;
        state.note(&format!("the process has ended: {:?}", end.why));
        state.stage = Stage::Down;
        let took = state.leaving.take().map_or(Duration::ZERO, |since| state.time().since(since));
        let panics = state.simulation.panics();
        state.asleep = state.plan.doze.is_some() && end.reason.as_deref() == Some(NOTHING_TO_DO);
        if state.asleep {
            state.figures.sleeps += 1;
        } else {
            state.soon(Event::Boot, 200, 20_000);
        }
        drop(state);
        if end.why == ShutdownReason::Failure {
            let what = format!("the gateway ended by itself: {:?} {panics:?}", end.reason);
            self.check(Err((Promise::G2, what)));
        }
        if took > stop_budget(DRAIN_TIMEOUT) {
            self.check(Err((Promise::G6, format!("a stop took {} s", took.as_secs()))));
        }
    }

    /// Nothing starts on a full disk; somebody tries again.
    fn not_started(&self, error: &StartError) {
        let mut state = self.lock();
        state.note(&format!("the process does not start: {error}"));
        state.stage = Stage::Down;
        state.soon(Event::Boot, 1_000, 20_000);
        drop(state);
        if !matches!(error, StartError::Gateway(Error::Store(StoreError::Full))) {
            self.check(Err((Promise::G2, format!("the gateway does not start: {error}"))));
        }
    }

    fn config(&self) -> Config {
        let state = self.lock();
        let home = state.home.path().to_owned();
        let mut settings = Settings::new(&home);
        settings.busy = state.plan.busy;
        settings.streaming = Streaming { enabled: state.plan.streaming, ..Streaming::default() };
        // The disk of the machine that runs the simulation plays no part.
        settings.retention.disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
        settings.cron.timezone = Some("UTC".into());
        if let Some(seconds) = state.plan.consent {
            settings.approvals.timeout = Duration::from_secs(seconds);
        }
        if let Some(rows) = state.plan.rows {
            settings.compaction.rows = rows;
        }
        let reconnect = link::LinkPolicy {
            fast_attempts: Some(4),
            slow_probe: Duration::from_secs(600),
            ..link::LinkPolicy::default()
        };
        let idle = state.plan.doze.map_or_else(IdleSettings::default, idling);
        let lifetime = Lifetime { drain_timeout: DRAIN_TIMEOUT, reconnect, idle, ..Lifetime::default() };
        let classes: BTreeSet<_> =
            state.world.chats.iter().map(|chat| chat.class).filter(|class| *class != Class::Pull).collect();
        drop(state);
        let adapters = classes.into_iter().flat_map(|class| match class {
            Class::Relayed => gateway_adapters(self),
            Class::Plain | Class::Keyed | Class::Pull => {
                vec![Adapter::Simulated(Arc::new(Simulated::new(self.clone(), class)))]
            }
        });
        Config {
            adapters: adapters.collect(),
            access: Access { allow_all: true, ..Access::default() },
            settings,
            lifetime,
            ..Config::new(&home, ModelConfig::simulated(Arc::new(Model(self.clone()))))
        }
    }
}

fn idling(idling: Idling) -> IdleSettings {
    let Idling { after, tick, exits } = idling;
    IdleSettings {
        wanted: true,
        wake_url: true,
        after: Duration::from_millis(after),
        // The command is not run; see `CommitObserver::suspended`.
        method: if exits { SuspendMethod::Exit } else { SuspendMethod::Command("suspend".into()) },
        tick: Duration::from_millis(tick),
    }
}

impl State {
    pub(super) fn handle(&self) -> Option<Handle> {
        match &self.stage {
            Stage::Up(handle) => Some(handle.clone()),
            Stage::Down | Stage::Starting => None,
        }
    }
}
