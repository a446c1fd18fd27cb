//! Marker watcher: notices the drain marker and the planned-stop marker in the home.
//!
//! Owns an inotify watch on the home. It also polls every second, because not every file system reports changes and a
//! drain marker expires. Changes go to the accept gate.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use petasos_core::lifecycle::{Event, ShutdownReason};

use crate::clock;
use crate::home::peers::{self, SignalMarker};
use crate::home::{drain, process::ProcessRecord};
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::shutdown::ShutdownHandle;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_millis(500);

pub(crate) struct MarkerWatcher {
    home: PathBuf,
    gate: AcceptGate,
    drain: drain::DrainMarkerReader,
    own: ProcessRecord,
    watch: Option<InotifyWatch>,
}

impl MarkerWatcher {
    /// Checks once, so that an existing marker counts before anything starts.
    pub(crate) fn new(home: &Path, max_age: Duration, gate: AcceptGate, own: ProcessRecord) -> Self {
        let watch = match InotifyWatch::open(home) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, "cannot watch the home; polling twice a second");
                None
            }
        };
        let drain = drain::DrainMarkerReader::new(home, max_age);
        let mut watcher = Self { home: home.into(), gate, drain, own, watch };
        watcher.check();
        watcher
    }

    pub(crate) async fn run(mut self, shutdown: ShutdownHandle) {
        let names: Vec<_> = [drain::path(&self.home), SignalMarker::PlannedStop.path(&self.home)]
            .iter()
            .filter_map(|path| path.file_name().map(OsStr::to_owned))
            .collect();
        loop {
            let pause = if self.watch.is_some() { POLL_INTERVAL } else { POLL_INTERVAL_WITHOUT_INOTIFY };
            petasos_runtime::select! {
                () = shutdown.stopped() => return,
                () = clock::sleep(pause) => {}
                touched = touched(&mut self.watch, &names) => if let Err(error) = touched {
                    tracing::warn!(%error, "stopped watching the home; polling twice a second");
                    self.watch = None;
                },
            }
            self.check();
        }
    }

    fn check(&mut self) {
        let marker = self.drain.check(clock::now());
        if let Some(state) = self.gate.apply(Event::Marker(marker)) {
            tracing::info!(state = state.as_str(), "drain marker changed");
        }
        if peers::probe(&self.home, SignalMarker::PlannedStop, &self.own, clock::now()) {
            if let Err(error) = peers::clear(&self.home, SignalMarker::PlannedStop) {
                tracing::warn!(%error, "cannot remove the planned-stop marker");
            }
            tracing::info!("planned stop requested");
            self.gate.shut_down(ShutdownReason::Stop, Some("a planned stop".into()));
        }
    }
}

struct InotifyWatch(EventStream<[u8; 4096]>);

impl InotifyWatch {
    fn open(home: &Path) -> io::Result<Self> {
        if petasos_runtime::is_simulated() {
            // Event times of the kernel are not deterministic.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let inotify = Inotify::init()?;
        // Complete files only, because the database in the same directory is written all the time.
        let events = WatchMask::CLOSE_WRITE | WatchMask::DELETE | WatchMask::MOVE;
        inotify.watches().add(home, events)?;
        Ok(Self(inotify.into_event_stream([0; 4096])?))
    }

    async fn touched(&mut self, names: &[OsString]) -> io::Result<()> {
        while let Some(event) = self.0.next().await {
            // An event without a name: the queue overflowed.
            if event?.name.is_none_or(|name| names.contains(&name)) {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

async fn touched(watch: &mut Option<InotifyWatch>, names: &[OsString]) -> io::Result<()> {
    match watch {
        Some(watch) => watch.touched(names).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn inotify_reports_marker_files_only() {
        let home = tempfile::tempdir().unwrap();
        let names = [OsString::from(".drain_request.json")];
        let mut watch = InotifyWatch::open(home.path()).unwrap();
        std::fs::write(home.path().join("gateway_state.json"), "{}").unwrap();
        let marker = drain::path(home.path());
        let touch: [&dyn Fn() -> io::Result<()>; 3] = [
            &|| std::fs::write(&marker, "{}"),
            &|| std::fs::rename(&marker, home.path().join("away")),
            &|| std::fs::rename(home.path().join("away"), &marker),
        ];
        for touch in touch {
            let early = std::pin::pin!(watch.touched(&names)).as_mut().now_or_never();
            assert!(early.is_none(), "an event without a marker");
            touch().unwrap();
            tokio::time::timeout(Duration::from_secs(20), watch.touched(&names))
                .await
                .expect("touched")
                .unwrap();
        }
    }
}
