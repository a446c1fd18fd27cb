//! Watches the home for what others leave there: the drain marker, and the marker of a planned stop.
//!
//! Owns the eyes on one directory. The kernel tells us at once; we look every second all the same, because a file
//! system need not tell, and a marker also ends by growing old. What is found goes to the gate, which decides.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use petasos_core::lifecycle::{Event, Leave};

use crate::clock;
use crate::home::peers::{self, Peer};
use crate::home::{drain, process::Record};
use crate::lifecycle::gate::Gate;
use crate::lifecycle::shutdown::Stopper;

/// How often we look without being told.
const LOOK: Duration = Duration::from_secs(1);
/// The same where the kernel does not tell.
const LOOK_BLIND: Duration = Duration::from_millis(500);

pub(crate) struct Lookout {
    home: PathBuf,
    gate: Gate,
    drain: drain::Lookout,
    own: Record,
    eyes: Option<Eyes>,
}

impl Lookout {
    /// Looks once, so that a marker that is already there counts before anything starts.
    pub(crate) fn new(home: &Path, max_age: Duration, gate: Gate, own: Record) -> Self {
        let eyes = match Eyes::open(home) {
            Ok(eyes) => Some(eyes),
            Err(error) => {
                tracing::warn!(%error, "the home cannot be watched; it is looked at twice a second");
                None
            }
        };
        let drain = drain::Lookout::new(home, max_age);
        let mut lookout = Self { home: home.into(), gate, drain, own, eyes };
        lookout.look();
        lookout
    }

    pub(crate) async fn run(mut self, stopper: Stopper) {
        let names: Vec<_> = [drain::path(&self.home), Peer::PlannedStop.path(&self.home)]
            .iter()
            .filter_map(|path| path.file_name().map(OsStr::to_owned))
            .collect();
        loop {
            let pause = if self.eyes.is_some() { LOOK } else { LOOK_BLIND };
            petasos_runtime::select! {
                () = stopper.stopped() => return,
                () = tokio::time::sleep(pause) => {}
                seen = seen(&mut self.eyes, &names) => if let Err(error) = seen {
                    tracing::warn!(%error, "the home cannot be watched any more; it is looked at twice a second");
                    self.eyes = None;
                },
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let marker = self.drain.look(clock::now());
        if let Some(state) = self.gate.feed(Event::Marker(marker)) {
            tracing::info!(state = state.as_str(), "the drain marker changed");
        }
        if peers::probe(&self.home, Peer::PlannedStop, &self.own, clock::now()) {
            if let Err(error) = peers::clear(&self.home, Peer::PlannedStop) {
                tracing::warn!(%error, "the marker of the planned stop stays");
            }
            tracing::info!("asked to stop");
            self.gate.leave(Leave::Stop, Some("a planned stop".into()));
        }
    }
}

/// An inotify instance on one directory.
struct Eyes(EventStream<[u8; 4096]>);

impl Eyes {
    fn open(home: &Path) -> io::Result<Self> {
        if petasos_runtime::is_simulated() {
            // The kernel tells when it likes.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let inotify = Inotify::init()?;
        // Complete files only. Not every write: the database in the same directory is written all the time.
        let what = WatchMask::CLOSE_WRITE | WatchMask::DELETE | WatchMask::MOVE;
        inotify.watches().add(home, what)?;
        Ok(Self(inotify.into_event_stream([0; 4096])?))
    }

    /// Resolves when one of these was touched.
    async fn seen(&mut self, names: &[OsString]) -> io::Result<()> {
        while let Some(event) = self.0.next().await {
            // Without a name: the queue overflowed, and anything may have happened.
            if event?.name.is_none_or(|name| names.contains(&name)) {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

async fn seen(eyes: &mut Option<Eyes>, names: &[OsString]) -> io::Result<()> {
    match eyes {
        Some(eyes) => eyes.seen(names).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_marker_is_seen_by_the_kernels_word_and_other_files_are_not() {
        let home = tempfile::tempdir().unwrap();
        let names = [OsString::from(".drain_request.json")];
        let mut eyes = Eyes::open(home.path()).unwrap();
        std::fs::write(home.path().join("gateway_state.json"), "{}").unwrap();
        let marker = drain::path(home.path());
        let touch: [&dyn Fn() -> io::Result<()>; 3] = [
            &|| std::fs::write(&marker, "{}"),
            &|| std::fs::rename(&marker, home.path().join("away")),
            &|| std::fs::rename(home.path().join("away"), &marker),
        ];
        for touch in touch {
            // Nothing of ours has happened yet.
            let early = std::pin::pin!(eyes.seen(&names)).as_mut().now_or_never();
            assert!(early.is_none(), "something else was taken for a marker");
            touch().unwrap();
            tokio::time::timeout(Duration::from_secs(20), eyes.seen(&names)).await.expect("seen").unwrap();
        }
    }
}
