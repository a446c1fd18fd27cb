//! Shared dependencies of the sessions, grouped so that periodic tasks get only what they use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use petasos_agent::{ModelChain, SubagentRole, Tools};
use petasos_core::session::platform_of;
use petasos_core::{Platform, SessionKey, Source};
use tokio::sync::Semaphore;

use crate::api::runs::RunLimiter;
use crate::background::cron::Jobs;
use crate::background::delegation::{ChildLevel, Delegation};
use crate::background::hooks::Hooks;
use crate::background::notifications::Notifications;
use crate::delivery::DeliveryHandles;
use crate::delivery::Owners;
use crate::inbound::downloads::Downloader;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::config::Settings;
use crate::links::channels::Channels;
use crate::sessions::approvals::Approvals;
use crate::sessions::questions::Questions;
use crate::sessions::router::Router;
use crate::storage::database::Db;

#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) db: Db,
    pub(crate) home: PathBuf,
    pub(crate) settings: Arc<Settings>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) agent: AgentHandles,
    pub(crate) people: PeopleHandles,
    pub(crate) delivery: DeliveryHandles,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) notifications: Notifications,
    pub(crate) jobs: Jobs,
    pub(crate) hooks: Hooks,
    pub(crate) downloader: Arc<Downloader>,
    pub(crate) runs: RunLimiter,
}

/// The model, its tools, and delegation.
#[derive(Debug)]
pub(crate) struct AgentHandles {
    pub(crate) model_chain: Arc<ModelChain>,
    pub(crate) tools: Tools,
    /// Tools of subagents that may not delegate further.
    pub(crate) leaf: Tools,
    pub(crate) orchestrator: Tools,
    pub(crate) narrowed: BTreeMap<Platform, Tools>,
    pub(crate) delegation: Delegation,
    pub(crate) calls: Semaphore,
}

/// Approvals, questions, and who may decide.
#[derive(Debug)]
pub(crate) struct PeopleHandles {
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) questions: Questions,
    pub(crate) owners: Owners,
}

impl AgentHandles {
    pub(crate) fn new(
        model_chain: Arc<ModelChain>,
        tools: Tools,
        delegation: Delegation,
        settings: &Settings,
    ) -> Self {
        Self {
            model_chain,
            narrowed: settings.narrowed.iter().map(|(at, names)| (*at, tools.only(names))).collect(),
            leaf: tools.for_child(SubagentRole::Leaf),
            orchestrator: tools.for_child(SubagentRole::Orchestrator),
            tools,
            delegation,
            calls: Semaphore::new(settings.parallel_calls.max(1)),
        }
    }

    /// The tools of a session. Derived from its key, so that a subagent keeps its restricted set after a restart.
    pub(crate) fn tools_of(&self, key: &SessionKey) -> &Tools {
        match ChildLevel::of(key).map(|level| level.role) {
            Some(SubagentRole::Leaf) => &self.leaf,
            Some(SubagentRole::Orchestrator) => &self.orchestrator,
            None => platform_of(key).and_then(|platform| self.narrowed.get(&platform)).unwrap_or(&self.tools),
        }
    }
}

impl Handles {
    /// Whether the author may approve commands for longer than once. The local owner always may.
    pub(crate) async fn may_approve_lastingly(&self, source: &Source) -> bool {
        let local = self.channels.is_local(source.platform);
        local || self.people.owners.may_approve_lastingly(&self.db, source).await
    }
}
