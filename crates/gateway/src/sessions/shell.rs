//! What every session needs of the world; made once, owned by nobody in particular.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use petasos_agent::{Brain, Role, Tools};
use petasos_core::session::platform_of;
use petasos_core::{Millis, Platform, SessionKey, Source};
use tokio::sync::Semaphore;

use crate::api::runs::Desk;
use crate::background::completions::Bell;
use crate::background::delegation::{Delegation, Place};
use crate::background::hooks::Hooks;
use crate::background::notifications::home_channels::Homes;
use crate::clock;
use crate::delivery::reactions::Marks;
use crate::delivery::{Deliver, Owners};
use crate::inbound::downloads::Fetcher;
use crate::lifecycle::config::Settings;
use crate::lifecycle::gate::Gate;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::shutdown::Stopper;
use crate::lifecycle::startup::quarantine::Quarantine;
use crate::links::channels::Channels;
use crate::links::idle::Traffic;
use crate::links::supervisor::LinkHandle;
use crate::sessions::approvals::Approvals;
use crate::sessions::questions::Questions;
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::storage::restart_counts::Counts;

/// What every session needs of the world.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) db: Db,
    pub(crate) brain: Arc<Brain>,
    pub(crate) tools: Tools,
    /// For those who work for others.
    pub(crate) leaf: Tools,
    pub(crate) orchestrator: Tools,
    /// On these platforms there are fewer.
    pub(crate) narrowed: BTreeMap<Platform, Tools>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) questions: Questions,
    pub(crate) owners: Owners,
    pub(crate) delegation: Delegation,
    pub(crate) channels: Arc<Channels>,
    pub(crate) deliver: Deliver,
    pub(crate) marks: Marks,
    pub(crate) router: Router,
    pub(crate) settings: Settings,
    pub(crate) lifetime: Lifetime,
    pub(crate) homes: Arc<Homes>,
    pub(crate) hooks: Hooks,
    pub(crate) home: PathBuf,
    pub(crate) fetcher: Fetcher,
    pub(crate) stopper: Stopper,
    pub(crate) gate: Gate,
    /// When somebody wrote to us last.
    pub(crate) traffic: Traffic,
    /// Every link, once they are there.
    pub(crate) links: OnceLock<Vec<LinkHandle>>,
    /// Messages accepted before this were promised an answer by the process before us.
    pub(crate) started_at: Millis,
    /// What `.restart_failure_counts` has to follow.
    pub(crate) counts: Counts,
    /// What programs asked for.
    pub(crate) runs: Desk,
    /// Suspects that are not resumed yet.
    pub(crate) quarantine: Quarantine,
    /// Rung when a turn has ended.
    pub(crate) ended: Bell,
    /// Model calls that may be under way at the same time.
    pub(crate) calls: Semaphore,
}

impl Shell {
    /// The tools of a conversation; those who work for another one have their own. Asked of its key, which the next process
    /// knows, too.
    pub(crate) fn tools_of(&self, key: &SessionKey) -> &Tools {
        match Place::of(key).map(|place| place.role) {
            Some(Role::Leaf) => &self.leaf,
            Some(Role::Orchestrator) => &self.orchestrator,
            None => platform_of(key).and_then(|platform| self.narrowed.get(&platform)).unwrap_or(&self.tools),
        }
    }

    /// Whether the author may allow commands for longer than once. The local owner at the page or the terminal may always.
    pub(crate) async fn may_decide_lastingly(&self, source: &Source) -> bool {
        self.channels.is_local(source.platform) || self.owners.may_decide_lastingly(&self.db, source).await
    }

    /// How long this process has been at it.
    pub(crate) fn age(&self) -> Duration {
        clock::now().since(self.started_at)
    }
}
