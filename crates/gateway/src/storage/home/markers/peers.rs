//! `.gateway-takeover.json` and `.gateway-planned-stop.json`: the signal that follows is intended.
//!
//! Written by a successor or by whoever stops us, just before the signal; taken by the process it names. Whom a marker
//! means, and what then becomes of it, is decided in `core::lifecycle::verdict`. One that is never taken (the
//! process died first) means nothing after a minute.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::stamp;
use petasos_core::lifecycle::verdict::{Fate, Me, Named, Verdict, judge};
use serde_json::json;

use crate::home::files::read;
use crate::home::files::write::{self, Durable};
use crate::home::process::Record;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Another gateway takes our place.
    Takeover,
    /// Somebody wants us to stop, and to stay stopped.
    PlannedStop,
}

impl Peer {
    pub fn path(self, home: &Path) -> PathBuf {
        home.join(match self {
            Self::Takeover => ".gateway-takeover.json",
            Self::PlannedStop => ".gateway-planned-stop.json",
        })
    }
}

/// Tells the process `target` that what comes is intended.
pub fn write(home: &Path, peer: Peer, target: &Record, now: Millis) -> io::Result<()> {
    let mut marker = json!({
        "target_pid": target.pid,
        "target_start_time": target.start_time,
        "written_at": stamp::format(now),
    });
    let writer = std::process::id();
    match peer {
        Peer::Takeover => {
            marker["replacer_pid"] = writer.into();
            marker["replacer_hermes_home"] = real(home).into();
        }
        Peer::PlannedStop => marker["stopper_pid"] = writer.into(),
    }
    write::replace(&peer.path(home), &serde_json::to_vec(&marker)?, Durable::Synced)
}

/// Whether a marker means us; it is used up by asking.
pub fn consume(home: &Path, peer: Peer, me: &Record, now: Millis) -> bool {
    look(home, peer, me, now, Verdict::consumed)
}

/// Whether a marker means us; a live one stays.
pub fn probe(home: &Path, peer: Peer, me: &Record, now: Millis) -> bool {
    look(home, peer, me, now, Verdict::probed)
}

/// False: there was none.
pub fn clear(home: &Path, peer: Peer) -> io::Result<bool> {
    write::remove(&peer.path(home), Durable::Loose)
}

fn look(home: &Path, peer: Peer, me: &Record, now: Millis, fate: fn(Verdict) -> Fate) -> bool {
    let Some(bytes) = read::bytes_if_readable(&peer.path(home)) else {
        return false;
    };
    let mut marker = Named::parse(&bytes);
    if let Some(Named { replacer_hermes_home: Some(theirs), .. }) = &mut marker {
        *theirs = real(Path::new(theirs));
    }
    let home_of_ours = real(home);
    let me = Me { pid: me.pid, start_time: me.start_time, home: &home_of_ours };
    let verdict = judge(marker.as_ref(), me, now);
    match fate(verdict) {
        Fate::Leave => {}
        Fate::Delete => {
            if let Err(error) = clear(home, peer) {
                tracing::warn!(?peer, %error, "used marker cannot be removed");
            }
        }
    }
    verdict == Verdict::Ours
}

/// Two ways to one home are one home.
fn real(home: &Path) -> String {
    std::fs::canonicalize(home).unwrap_or_else(|_| home.into()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    const NOW: Millis = Millis(1_794_766_299_649);
    const BOTH: [Peer; 2] = [Peer::Takeover, Peer::PlannedStop];

    fn home() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    fn me() -> Record {
        Record::of_this_process()
    }

    fn other() -> Record {
        Record { pid: me().pid + 1, ..me() }
    }

    #[test]
    fn a_marker_for_us_is_seen_and_used_once() {
        for peer in BOTH {
            let home = home();
            write(home.path(), peer, &me(), NOW).unwrap();
            assert!(probe(home.path(), peer, &me(), NOW) && probe(home.path(), peer, &me(), NOW));
            assert!(consume(home.path(), peer, &me(), NOW) && !consume(home.path(), peer, &me(), NOW));
        }
    }

    #[test]
    fn the_markers_say_who_writes_whom_they_mean_and_when() {
        let home = home();
        for (peer, writer) in [(Peer::Takeover, "replacer_pid"), (Peer::PlannedStop, "stopper_pid")] {
            write(home.path(), peer, &me(), NOW).unwrap();
            let marker: Value =
                serde_json::from_slice(&std::fs::read(peer.path(home.path())).unwrap()).unwrap();
            assert_eq!(marker["target_pid"], me().pid);
            assert_eq!(marker["target_start_time"], me().start_time.unwrap());
            assert_eq!(marker[writer], std::process::id());
            assert_eq!(marker["written_at"], "2026-11-15T18:11:39.649000+00:00");
            assert_eq!(marker.get("replacer_hermes_home").is_some(), peer == Peer::Takeover);
        }
    }

    #[test]
    fn a_planned_stop_for_another_process_is_ignored_and_one_of_61_seconds_is_deleted() {
        let home = home();
        let path = Peer::PlannedStop.path(home.path());
        write(home.path(), Peer::PlannedStop, &other(), NOW).unwrap();
        assert!(!probe(home.path(), Peer::PlannedStop, &me(), NOW) && path.exists());
        let old = NOW.before(Duration::from_secs(61));
        write(home.path(), Peer::PlannedStop, &me(), old).unwrap();
        assert!(!probe(home.path(), Peer::PlannedStop, &me(), NOW) && !path.exists());
    }

    #[test]
    fn acting_on_a_marker_for_another_process_of_this_home_deletes_it() {
        let home = home();
        write(home.path(), Peer::Takeover, &other(), NOW).unwrap();
        assert!(!consume(home.path(), Peer::Takeover, &me(), NOW));
        assert!(!Peer::Takeover.path(home.path()).exists());
    }

    #[test]
    fn a_takeover_of_another_home_is_left_and_one_of_ours_by_another_way_is_not() {
        let (ours, theirs, ways) = (home(), home(), home());
        let path = Peer::Takeover.path(ours.path());
        write(theirs.path(), Peer::Takeover, &me(), NOW).unwrap();
        std::fs::copy(Peer::Takeover.path(theirs.path()), &path).unwrap();
        assert!(!consume(ours.path(), Peer::Takeover, &me(), NOW) && path.exists());
        let way = ways.path().join("home");
        std::os::unix::fs::symlink(ours.path(), &way).unwrap();
        write(&way, Peer::Takeover, &me(), NOW).unwrap();
        assert!(consume(ours.path(), Peer::Takeover, &me(), NOW) && !path.exists());
    }

    #[test]
    fn clearing_tells_whether_there_was_a_marker() {
        let home = home();
        write(home.path(), Peer::Takeover, &me(), NOW).unwrap();
        assert!(clear(home.path(), Peer::Takeover).unwrap());
        assert!(!clear(home.path(), Peer::Takeover).unwrap());
    }

    #[test]
    fn junk_means_nobody_and_is_removed() {
        for peer in BOTH {
            let home = home();
            let path = peer.path(home.path());
            ruin(&path, |what| {
                assert!(!probe(home.path(), peer, &me(), NOW), "{what}");
                assert!(!consume(home.path(), peer, &me(), NOW), "{what}");
                let readable = !["huge", "a link to itself", "a directory"].contains(&what);
                assert!(!readable || !path.exists(), "{what}");
            });
            for home in NO_HOMES {
                assert!(!consume(Path::new(home), peer, &me(), NOW), "{home:?}");
            }
        }
    }
}
