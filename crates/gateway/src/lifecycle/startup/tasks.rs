//! Starts the tasks of a gateway, each with only the handles that it uses.

use petasos_core::session::KeyOptions;
use petasos_store::{Suspect, SuspectHold};
use tokio::task::JoinHandle;

use super::quarantine::{self, SuspectRelease};
use crate::background::completions::{self, CompletionDispatcher, WakeSignal};
use crate::background::cron::{self, Scheduler};
use crate::lifecycle::config::LocalService;
use crate::lifecycle::heartbeat;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::idle::{self, Traffic};
use crate::links::network::{self, OutboundAddresses};
use crate::links::supervisor::LinkHandle;
use crate::links::{self, directory, outages, rate_limits};
use crate::runtime::tasks;
use crate::sessions::Handles;
use crate::storage::sweep::{self, Sweep};
use crate::storage::{file_loss, restart_counts, retention, salvage};

/// Tasks that end with the gateway. A failing vital task stops the gateway.
#[derive(Debug)]
pub(super) struct TaskSet {
    shutdown: ShutdownHandle,
    running: Vec<JoinHandle<()>>,
}

impl TaskSet {
    pub(super) fn new(shutdown: &ShutdownHandle) -> Self {
        Self { shutdown: shutdown.clone(), running: Vec::new() }
    }

    pub(super) fn into_handles(self) -> Vec<JoinHandle<()>> {
        self.running
    }

    pub(super) fn vital(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.push(tasks::vital(name, &self.shutdown, task));
    }

    /// Tasks whose failure the gateway survives.
    pub(super) fn spawn_optional(
        &mut self,
        all: impl IntoIterator<Item = impl Future<Output = ()> + Send + 'static>,
    ) {
        self.running.extend(all.into_iter().map(petasos_runtime::spawn));
    }

    pub(super) fn start_maintenance(&mut self, handles: &Handles, notifier: &Notifier) {
        let Handles { db, home, notifications, lifecycle, .. } = handles;
        let shutdown = self.shutdown.clone();
        let started = lifecycle.started_at;
        self.vital(
            "heartbeat",
            heartbeat::run(db.clone(), home.clone(), started, notifier.clone(), shutdown.clone()),
        );
        let counts = lifecycle.counts.clone();
        self.vital("counts", restart_counts::run(db.clone(), home.clone(), counts, shutdown.clone()));
        let sweep = Sweep {
            db: db.clone(),
            home: home.clone(),
            resets: handles.settings.resets.clone(),
            downloader: handles.downloader.clone(),
            shutdown: shutdown.clone(),
        };
        self.vital("sweep", sweep::run(sweep));
        self.vital("retention", retention::run(handles.settings.retention.clone(), notifications.clone()));
        for adapter in handles.channels.adapters() {
            self.vital("rate limits", rate_limits::persist(adapter.clone(), db.clone(), shutdown.clone()));
        }
    }

    /// Detection of damage and of removed database files.
    pub(super) fn watch_database(&mut self, handles: &Handles) {
        let Handles { db, notifications, lifecycle, .. } = handles;
        self.vital("check", db.clone().check_pages(self.shutdown.clone()));
        self.vital("salvage", salvage::watch(lifecycle.clone(), notifications.clone()));
        self.vital("file-loss", file_loss::run(db.clone(), notifications.clone()));
    }

    /// Tasks that depend on the state of the links.
    pub(super) fn follow_links(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        page: LocalService,
        outward: fn() -> OutboundAddresses,
    ) {
        let all = || links.to_vec();
        let shutdown = self.shutdown.clone();
        self.vital("links", links::watch(all(), handles.lifecycle.gate.clone(), page, shutdown.clone()));
        self.vital("outages", outages::run(handles.notifications.clone(), all()));
        self.vital("network", network::watch(all(), outward, shutdown.clone()));
        let sources = directory::DirectoryBuilder {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            home: handles.home.clone(),
            shutdown,
        };
        self.vital("directory", directory::run(sources, all()));
    }

    pub(super) fn start_background(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        keys: KeyOptions,
        wake: WakeSignal,
    ) {
        let scheduler = Scheduler {
            jobs: handles.jobs.clone(),
            notifications: handles.notifications.clone(),
            gate: handles.lifecycle.gate.clone(),
            keys,
        };
        self.vital("cron", cron::run(scheduler));
        let with = CompletionDispatcher {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            router: handles.router.clone(),
            lanes: handles.delivery.lanes.clone(),
            redactor: handles.settings.redactor.clone(),
            shutdown: self.shutdown.clone(),
        };
        self.vital("completions", completions::run(with, wake, links.to_vec()));
    }

    pub(super) fn start_quarantine(
        &mut self,
        handles: &Handles,
        links: &[LinkHandle],
        held: Vec<Suspect>,
        hold: SuspectHold,
    ) {
        if held.is_empty() {
            return;
        }
        let with = SuspectRelease {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            router: handles.router.clone(),
            quarantine: handles.lifecycle.quarantine.clone(),
            shutdown: self.shutdown.clone(),
        };
        self.vital("quarantine", quarantine::run(with, held, hold, links.to_vec()));
    }

    pub(super) fn sleep_when_idle(&mut self, handles: &Handles, traffic: Traffic) {
        let watched = idle::IdleMonitor {
            db: handles.db.clone(),
            channels: handles.channels.clone(),
            gate: handles.lifecycle.gate.clone(),
            traffic,
            shutdown: self.shutdown.clone(),
        };
        self.spawn_optional([idle::run(watched, handles.lifecycle.lifetime.idle.clone())]);
    }
}
