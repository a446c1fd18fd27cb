//! Another program with its own SQLite library (Python's) that uses the database at the same time. Older SQLite releases
//! unlink the write-ahead log as soon as no other process holds its lock.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use petasos_fakes::wait;

use super::{SOON, eventually};

/// Opens, reads, writes a temporary table, backs up and closes, in a loop until the stop file exists.
const CLIENT: &str = r#"
import os, sqlite3, sys, time
database, table, rounds_file, stop = sys.argv[1:]
rounds = 0
while not os.path.exists(stop):
    try:
        db = sqlite3.connect("file:" + database + "?mode=rw", uri=True, timeout=5)
        db.execute("SELECT count(*) FROM " + table).fetchall()
        db.execute("CREATE TEMP TABLE scratch (x)")
        db.execute("INSERT INTO scratch VALUES (1)")
        db.commit()
        copy = sqlite3.connect(stop + ".copy")
        db.backup(copy)
        copy.close()
        db.close()
        rounds += 1
    except sqlite3.OperationalError as error:
        # The database does not exist yet, or another process is starting.
        print(error, file=sys.stderr)
        time.sleep(0.01)
    with open(rounds_file + "~", "w") as out:
        out.write(str(rounds))
    os.replace(rounds_file + "~", rounds_file)
"#;

pub struct ForeignClient {
    child: Child,
    folder: tempfile::TempDir,
}

impl ForeignClient {
    pub fn start(database: &Path, table: &str) -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let child = Command::new("python3")
            .args(["-c", CLIENT])
            .arg(database)
            .arg(table)
            .args([folder.path().join("rounds"), folder.path().join("stop")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 with its sqlite3 module");
        Self { child, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn rounds(&self) -> u64 {
        std::fs::read_to_string(self.file("rounds")).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Waits for one complete round that starts after this call.
    #[track_caller]
    pub fn wait_next_round(&self) {
        // The current round started before the call.
        let want = self.rounds() + 2;
        eventually("the foreign client closes the database", || self.rounds() >= want);
    }
}

impl Drop for ForeignClient {
    fn drop(&mut self) {
        let _ = std::fs::write(self.file("stop"), "");
        if wait::poll(SOON, || self.child.try_wait().ok().flatten()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Number of kills, with ten messages each: four, or `PETASOS_OUTSIDE_KILLS`.
pub fn kill_count() -> u64 {
    std::env::var("PETASOS_OUTSIDE_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(4)
}
