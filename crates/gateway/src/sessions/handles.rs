//! What sessions are made with, in groups of what belongs together. Periodic tasks get the groups that they use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use petasos_agent::{Brain, Role, Tools};
use petasos_core::session::platform_of;
use petasos_core::{Platform, SessionKey, Source};
use tokio::sync::Semaphore;

use crate::api::runs::Desk;
use crate::background::cron::Jobs;
use crate::background::delegation::{Delegation, Place};
use crate::background::hooks::Hooks;
use crate::background::notifications::Notifications;
use crate::delivery::Delivery;
use crate::delivery::Owners;
use crate::inbound::downloads::Fetcher;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::config::Settings;
use crate::links::channels::Channels;
use crate::sessions::approvals::Approvals;
use crate::sessions::questions::Questions;
use crate::sessions::router::Router;
use crate::storage::database::Db;

/// Made once, shared by every session and by the handle for the outside.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) db: Db,
    pub(crate) home: PathBuf,
    pub(crate) settings: Arc<Settings>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) agent: Agent,
    pub(crate) people: People,
    pub(crate) delivery: Delivery,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) notifications: Notifications,
    pub(crate) jobs: Jobs,
    pub(crate) hooks: Hooks,
    pub(crate) fetcher: Arc<Fetcher>,
    /// What programs asked for.
    pub(crate) runs: Desk,
}

/// The model, its tools, and those who work for a turn.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) brain: Arc<Brain>,
    pub(crate) tools: Tools,
    /// For those who work for others.
    pub(crate) leaf: Tools,
    pub(crate) orchestrator: Tools,
    /// On these platforms there are fewer.
    pub(crate) narrowed: BTreeMap<Platform, Tools>,
    pub(crate) delegation: Delegation,
    /// Model calls that may be under way at the same time.
    pub(crate) calls: Semaphore,
}

/// Who is asked, and who may decide what.
#[derive(Debug)]
pub(crate) struct People {
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) questions: Questions,
    pub(crate) owners: Owners,
}

impl Agent {
    pub(crate) fn new(brain: Arc<Brain>, tools: Tools, delegation: Delegation, settings: &Settings) -> Self {
        Self {
            brain,
            narrowed: settings.narrowed.iter().map(|(at, names)| (*at, tools.only(names))).collect(),
            leaf: tools.for_child(Role::Leaf),
            orchestrator: tools.for_child(Role::Orchestrator),
            tools,
            delegation,
            calls: Semaphore::new(settings.parallel_calls.max(1)),
        }
    }

    /// The tools of a conversation; those who work for another one have their own. Asked of its key, which the next process
    /// knows, too.
    pub(crate) fn tools_of(&self, key: &SessionKey) -> &Tools {
        match Place::of(key).map(|place| place.role) {
            Some(Role::Leaf) => &self.leaf,
            Some(Role::Orchestrator) => &self.orchestrator,
            None => platform_of(key).and_then(|platform| self.narrowed.get(&platform)).unwrap_or(&self.tools),
        }
    }
}

impl Handles {
    /// Whether the author may allow commands for longer than once. The local owner at the page or the terminal may always.
    pub(crate) async fn may_decide_lastingly(&self, source: &Source) -> bool {
        let local = self.channels.is_local(source.platform);
        local || self.people.owners.may_decide_lastingly(&self.db, source).await
    }
}
