//! The tasks of a gateway: each gets only the handles that it uses.

use petasos_core::session::KeyOptions;
use petasos_store::{Hold, Suspect};
use tokio::task::JoinHandle;

use super::quarantine::{self, Release};
use crate::background::completions::{self, Bell, HandOver};
use crate::background::cron::{self, Scheduler};
use crate::lifecycle::config::Page;
use crate::lifecycle::heartbeat;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::Stopper;
use crate::links::idle::{self, Traffic};
use crate::links::network::{self, Outward};
use crate::links::supervisor::LinkHandle;
use crate::links::{self, directory, outages, rate_limits};
use crate::runtime::tasks;
use crate::sessions::Handles;
use crate::storage::sweep::{self, Sweep};
use crate::storage::{file_loss, restart_counts, retention, salvage};

/// Ended by the stop itself; a vital one that fails takes the gateway along.
#[derive(Debug)]
pub(super) struct Tasks {
    stopper: Stopper,
    running: Vec<JoinHandle<()>>,
}

impl Tasks {
    pub(super) fn new(stopper: &Stopper) -> Self {
        Self { stopper: stopper.clone(), running: Vec::new() }
    }

    pub(super) fn into_handles(self) -> Vec<JoinHandle<()>> {
        self.running
    }

    pub(super) fn vital(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.push(tasks::vital(name, &self.stopper, task));
    }

    /// The gateway lives on without them.
    pub(super) fn courtesies(
        &mut self,
        all: impl IntoIterator<Item = impl Future<Output = ()> + Send + 'static>,
    ) {
        self.running.extend(all.into_iter().map(petasos_runtime::spawn));
    }

    /// What keeps the home and the database in order.
    pub(super) fn keep_house(&mut self, handles: &Handles, notifier: &Notifier) {
        let Handles { db, home, notifications, lifecycle, .. } = handles;
        let (stopper, started) = (self.stopper.clone(), lifecycle.started_at);
        self.vital(
            "pulse",
            heartbeat::run(db.clone(), home.clone(), started, notifier.clone(), stopper.clone()),
        );
        let counts = lifecycle.counts.clone();
        self.vital("counts", restart_counts::run(db.clone(), home.clone(), counts, stopper.clone()));
        let sweep = Sweep {
            db: db.clone(),
            home: home.clone(),
            resets: handles.settings.resets.clone(),
            fetcher: handles.fetcher.clone(),
            stopper: stopper.clone(),
        };
        self.vital("sweep", sweep::run(sweep));
        self.vital("retention", retention::run(handles.settings.retention.clone(), notifications.clone()));
        for adapter in handles.channels.adapters() {
            self.vital("rate limits", rate_limits::keep(adapter.clone(), db.clone(), stopper.clone()));
        }
    }

    /// Damage, and files that others remove.
    pub(super) fn watch_database(&mut self, handles: &Handles) {
        let Handles { db, notifications, lifecycle, .. } = handles;
        self.vital("check", db.clone().check_pages(self.stopper.clone()));
        self.vital("salvage", salvage::watch(lifecycle.clone(), notifications.clone()));
        self.vital("file-loss", file_loss::run(db.clone(), notifications.clone()));
    }

    /// What follows the state of the links.
    pub(super) fn follow_links(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        page: Page,
        outward: fn() -> Outward,
    ) {
        let (all, stopper) = (|| links.to_vec(), self.stopper.clone());
        self.vital("links", links::watch(all(), handles.lifecycle.gate.clone(), page, stopper.clone()));
        self.vital("outages", outages::run(handles.notifications.clone(), all()));
        self.vital("network", network::watch(all(), outward, stopper.clone()));
        let sources = directory::Sources {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            home: handles.home.clone(),
            stopper,
        };
        self.vital("directory", directory::run(sources, all()));
    }

    /// Work that nobody waits for: jobs that are due, and what has ended in the background.
    pub(super) fn hand_over(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        keys: KeyOptions,
        bell: Bell,
    ) {
        let scheduler = Scheduler {
            jobs: handles.jobs.clone(),
            notifications: handles.notifications.clone(),
            gate: handles.lifecycle.gate.clone(),
            keys,
        };
        self.vital("cron", cron::run(scheduler));
        let with = HandOver {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            router: handles.router.clone(),
            deliver: handles.delivery.deliver.clone(),
            stopper: self.stopper.clone(),
        };
        self.vital("completions", completions::run(with, bell, links.to_vec()));
    }

    /// Suspects are resumed one at a time.
    pub(super) fn release(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        held: Vec<Suspect>,
        hold: Hold,
    ) {
        if held.is_empty() {
            return;
        }
        let with = Release {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            router: handles.router.clone(),
            quarantine: handles.lifecycle.quarantine.clone(),
            stopper: self.stopper.clone(),
        };
        self.vital("quarantine", quarantine::run(with, held, hold, links.to_vec()));
    }

    pub(super) fn sleep_when_idle(&mut self, handles: &Handles, traffic: Traffic) {
        let watched = idle::Watched {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            gate: handles.lifecycle.gate.clone(),
            traffic,
            stopper: self.stopper.clone(),
        };
        self.courtesies([idle::run(watched, handles.lifecycle.lifetime.doze.clone())]);
    }
}
