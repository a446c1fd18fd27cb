//! Signal markers, `.gateway-takeover.json` and `.gateway-planned-stop.json`: the next signal is intended.
//!
//! Written by the sender of a signal just before it, removed by the process that the marker names. Which process a marker
//! means, and what then becomes of it, is decided in `core::lifecycle::process_marker`. One that is never taken (the
//! process died first) means nothing after a minute.

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::lifecycle::process_marker::{
    CurrentProcess, FileAction, MarkerMatch, ProcessMarker, match_marker,
};
use petasos_core::lifecycle::stamp;
use serde_json::json;

use crate::home::files::read;
use crate::home::files::write::{self, Durable};
use crate::home::process::ProcessRecord;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalMarker {
    /// Another gateway replaces this one.
    Takeover,
    /// The gateway shall stop and not be restarted.
    PlannedStop,
}

impl SignalMarker {
    pub fn path(self, home: &Path) -> PathBuf {
        home.join(match self {
            Self::Takeover => ".gateway-takeover.json",
            Self::PlannedStop => ".gateway-planned-stop.json",
        })
    }
}

pub fn write(home: &Path, peer: SignalMarker, target: &ProcessRecord, now: Millis) -> io::Result<()> {
    let mut marker = json!({
        "target_pid": target.pid,
        "target_start_time": target.start_time,
        "written_at": stamp::format(now),
    });
    let writer = std::process::id();
    match peer {
        SignalMarker::Takeover => {
            marker["replacer_pid"] = writer.into();
            marker["replacer_hermes_home"] = canonical(home).into();
        }
        SignalMarker::PlannedStop => marker["stopper_pid"] = writer.into(),
    }
    write::replace(&peer.path(home), &serde_json::to_vec(&marker)?, Durable::Synced)
}

/// Whether a marker names this process; removes it.
pub fn consume(home: &Path, peer: SignalMarker, me: &ProcessRecord, now: Millis) -> bool {
    read_and_judge(home, peer, me, now, MarkerMatch::after_use)
}

/// Whether a marker names this process; keeps a valid one.
pub fn probe(home: &Path, peer: SignalMarker, me: &ProcessRecord, now: Millis) -> bool {
    read_and_judge(home, peer, me, now, MarkerMatch::after_probe)
}

pub fn clear(home: &Path, peer: SignalMarker) -> io::Result<bool> {
    write::remove(&peer.path(home), Durable::Loose)
}

fn read_and_judge(
    home: &Path,
    peer: SignalMarker,
    me: &ProcessRecord,
    now: Millis,
    fate: fn(MarkerMatch) -> FileAction,
) -> bool {
    let Some(bytes) = read::bytes_if_readable(&peer.path(home)) else {
        return false;
    };
    let mut marker = ProcessMarker::parse(&bytes);
    if let Some(ProcessMarker { replacer_hermes_home: Some(theirs), .. }) = &mut marker {
        *theirs = canonical(Path::new(theirs));
    }
    let home_of_ours = canonical(home);
    let me = CurrentProcess { pid: me.pid, start_time: me.start_time, home: &home_of_ours };
    let verdict = match_marker(marker.as_ref(), me, now);
    match fate(verdict) {
        FileAction::Keep => {}
        FileAction::Delete => {
            if let Err(error) = clear(home, peer) {
                tracing::warn!(?peer, %error, "cannot remove a used marker");
            }
        }
    }
    verdict == MarkerMatch::Ours
}

/// Resolves symbolic links, so that a home has one path.
fn canonical(home: &Path) -> String {
    std::fs::canonicalize(home).unwrap_or_else(|_| home.into()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    const NOW: Millis = Millis(1_794_766_299_649);
    const BOTH: [SignalMarker; 2] = [SignalMarker::Takeover, SignalMarker::PlannedStop];

    fn home() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    fn me() -> ProcessRecord {
        ProcessRecord::of_this_process()
    }

    fn other() -> ProcessRecord {
        ProcessRecord { pid: me().pid + 1, ..me() }
    }

    #[test]
    fn own_marker_is_consumed_once() {
        for peer in BOTH {
            let home = home();
            write(home.path(), peer, &me(), NOW).unwrap();
            assert!(probe(home.path(), peer, &me(), NOW) && probe(home.path(), peer, &me(), NOW));
            assert!(consume(home.path(), peer, &me(), NOW) && !consume(home.path(), peer, &me(), NOW));
        }
    }

    #[test]
    fn markers_name_writer_target_and_time() {
        let home = home();
        for (peer, writer) in
            [(SignalMarker::Takeover, "replacer_pid"), (SignalMarker::PlannedStop, "stopper_pid")]
        {
            write(home.path(), peer, &me(), NOW).unwrap();
            let marker: Value =
                serde_json::from_slice(&std::fs::read(peer.path(home.path())).unwrap()).unwrap();
            assert_eq!(marker["target_pid"], me().pid);
            assert_eq!(marker["target_start_time"], me().start_time.unwrap());
            assert_eq!(marker[writer], std::process::id());
            assert_eq!(marker["written_at"], "2026-11-15T18:11:39.649000+00:00");
            assert_eq!(marker.get("replacer_hermes_home").is_some(), peer == SignalMarker::Takeover);
        }
    }

    #[test]
    fn probe_keeps_foreign_marker_and_deletes_expired_one() {
        let home = home();
        let path = SignalMarker::PlannedStop.path(home.path());
        write(home.path(), SignalMarker::PlannedStop, &other(), NOW).unwrap();
        assert!(!probe(home.path(), SignalMarker::PlannedStop, &me(), NOW) && path.exists());
        let old = NOW.before(Duration::from_secs(61));
        write(home.path(), SignalMarker::PlannedStop, &me(), old).unwrap();
        assert!(!probe(home.path(), SignalMarker::PlannedStop, &me(), NOW) && !path.exists());
    }

    #[test]
    fn consume_deletes_marker_for_another_process_of_home() {
        let home = home();
        write(home.path(), SignalMarker::Takeover, &other(), NOW).unwrap();
        assert!(!consume(home.path(), SignalMarker::Takeover, &me(), NOW));
        assert!(!SignalMarker::Takeover.path(home.path()).exists());
    }

    #[test]
    fn takeover_compares_canonical_home_paths() {
        let ours = home();
        let theirs = home();
        let ways = home();
        let path = SignalMarker::Takeover.path(ours.path());
        write(theirs.path(), SignalMarker::Takeover, &me(), NOW).unwrap();
        std::fs::copy(SignalMarker::Takeover.path(theirs.path()), &path).unwrap();
        assert!(!consume(ours.path(), SignalMarker::Takeover, &me(), NOW) && path.exists());
        let way = ways.path().join("home");
        std::os::unix::fs::symlink(ours.path(), &way).unwrap();
        write(&way, SignalMarker::Takeover, &me(), NOW).unwrap();
        assert!(consume(ours.path(), SignalMarker::Takeover, &me(), NOW) && !path.exists());
    }

    #[test]
    fn clear_reports_whether_there_was_a_marker() {
        let home = home();
        write(home.path(), SignalMarker::Takeover, &me(), NOW).unwrap();
        assert!(clear(home.path(), SignalMarker::Takeover).unwrap());
        assert!(!clear(home.path(), SignalMarker::Takeover).unwrap());
    }

    #[test]
    fn removes_junk_markers() {
        for peer in BOTH {
            let home = home();
            let path = peer.path(home.path());
            for_each_damage(&path, |what| {
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
