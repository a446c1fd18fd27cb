//! The connector's process: start, crash, configuration, and the gateway's way to it.

use std::future::{Future, pending};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use petasos_connector::simulation::{Door, Wake};
use petasos_connector::{Config, RunningConnector, StartError};
use petasos_core::access::Access;
use petasos_gateway::Error;
use petasos_platforms::Adapter;
use petasos_platforms::relay::{self, Credentials, Identity, credentials};
use petasos_runtime::clock;
use petasos_store::{Error as StoreError, Store};

use super::wire::Dialler;
use super::{INSTANCE, Stage};
use crate::figures::START;
use crate::gateway::adapter::Simulated;
use crate::gateway::state::{Event, Outside, State};
use crate::home::Moment;
use crate::outside::Class;
use crate::promise::Promise;

/// The name of the gateway at the connector.
const GATEWAY: &str = "gw";
/// Has no listener: the simulation dials.
const ADDRESS: &str = "http://127.0.0.1:9";
const WAKE: &str = "https://wake.example/";

/// Makes the connector's database, with the gateway in it.
pub(super) fn enroll(home: &Path) -> Credentials {
    let mut store = Store::open_connector(home.join(petasos_connector::DATABASE)).expect("a new database");
    let gateway = store.write(|tx| {
        tx.ensure_single_instance(&INSTANCE.into(), START)?;
        tx.put_wake_url(&INSTANCE.into(), Some(WAKE))?;
        tx.add_gateway(&GATEWAY.into(), &INSTANCE.into(), START)
    });
    let gateway = gateway.expect("a gateway of its own");
    credentials(GATEWAY, gateway.secrets.first().expect("a secret").clone())
}

/// The adapters of a gateway behind the connector.
pub(crate) fn gateway_adapters(outside: &Outside) -> Vec<Adapter> {
    let mut state = outside.lock();
    let room = state.plan.room;
    let shown = state.relay().credentials.clone();
    drop(state);
    let config = relay::Config {
        identities: vec![Identity { platform: Class::Relayed.platform(), bot_id: "bot".into() }],
        credentials: Some(shown),
        most_waiting: room,
        dial: Some(Arc::new(Dialler(outside.clone()))),
        ..relay::Config::new(ADDRESS)
    };
    relay::adapters(config).expect("a relay").into_iter().map(Adapter::Relay).collect()
}

impl Outside {
    /// The connector starts.
    pub(crate) fn start_connector(&self) {
        let mut state = self.lock();
        let relay = state.relay();
        if !relay.is_down() {
            return;
        }
        relay.life += 1;
        relay.heard = None;
        relay.stage = Stage::Starting;
        relay.home.start();
        let process = relay.process();
        let ahead = relay.ahead;
        state.note("the connector starts");
        let simulation = state.simulation.clone();
        drop(state);
        simulation.set_clock(process, ahead);
        let outside = self.clone();
        drop(simulation.spawn_in(process, async move { outside.connector_lives().await }));
    }

    /// From start to end, unless it is killed.
    async fn connector_lives(self) {
        match petasos_connector::simulation::start(self.connector_config()).await {
            Ok((door, running)) => {
                self.connector_is_up(door, &running);
                let _failed = running.wait(pending()).await;
                let panics = self.lock().simulation.panics();
                self.check(Err((Promise::G2, format!("the connector ended by itself: {panics:?}"))));
            }
            Err(error) => self.connector_did_not_start(&error),
        }
    }

    fn connector_is_up(&self, door: Door, running: &RunningConnector) {
        let mut state = self.lock();
        state.note("the connector is up");
        state.relay().stage = Stage::Up { door, links: running.links().to_vec() };
    }

    /// Nothing starts on a full disk; the start is repeated.
    fn connector_did_not_start(&self, error: &StartError) {
        let mut state = self.lock();
        state.note(&format!("the connector does not start: {error}"));
        state.relay().stage = Stage::Down;
        state.soon(Event::StartConnector, 1_000, 20_000);
        drop(state);
        if !matches!(error, StartError::Connector(Error::Store(StoreError::Full))) {
            self.check(Err((Promise::G2, format!("the connector does not start: {error}"))));
        }
    }

    fn connector_config(&self) -> Config {
        let mut state = self.lock();
        let terms = state.plan.session;
        let home = state.relay().home.path().to_owned();
        drop(state);
        Config {
            adapters: vec![Adapter::Simulated(Arc::new(Simulated::new(self.clone(), Class::Relayed)))],
            access: Access { allow_all: true, ..Access::default() },
            single_instance: Some(INSTANCE.into()),
            terms,
            // The limits of the machine that runs the simulation are left alone.
            max_sockets: 64,
            wake: Some(Arc::new(Waker(self.clone()))),
            ..Config::new(&home)
        }
    }

    /// The door of the connector, if it is open.
    pub(super) fn door(&self) -> Option<Door> {
        match &self.lock().relay().stage {
            Stage::Up { door, .. } => Some(door.clone()),
            Stage::Down | Stage::Starting => None,
        }
    }

    /// Checks the connector's links like those of the gateway.
    pub(crate) fn look_at_connector(&self) {
        let state = self.lock();
        let Some(relay) = &state.relay else { return };
        let Stage::Up { links, .. } = &relay.stage else { return };
        let true_now = state.time();
        let now = petasos_core::Millis(true_now.0.saturating_add_signed(relay.ahead));
        let heard = relay.heard.map(|at| true_now.since(at));
        let set = state.figures.jumps > 0;
        let looked = links.iter().map(|it| state.truth.link_state(&it.link.borrow(), heard, set, now));
        let check = looked.collect::<Result<Vec<_>, _>>().map(drop);
        drop(state);
        self.check(check);
    }
}

impl State {
    /// `kill -9` of the connector, or a power cut.
    pub(crate) fn crash_connector(&mut self, moment: Moment) {
        let crash = self.next_crash();
        self.note(&format!("the connector dies: {crash:?}"));
        let process = self.relay().process();
        self.simulation.kill(process);
        self.close_wires_of(process, crash);
        let relay = self.relay();
        let stage = std::mem::replace(&mut relay.stage, Stage::Down);
        relay.left_behind.push(stage);
        relay.home.crash(crash, moment);
        self.soon(Event::StartConnector, 200, 20_000);
    }
}

/// The wake address: its call starts the gateway's process.
#[derive(Debug)]
struct Waker(Outside);

impl Wake for Waker {
    fn wake<'a>(&'a self, _url: &'a str) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let wait = {
                let mut state = self.0.lock();
                state.soon(Event::Poke, 50, 3_000);
                state.luck.between(50, 3_000)
            };
            clock::sleep(Duration::from_millis(wait)).await;
        })
    }
}
