//! Another program that uses the database with a SQLite library of its own: Python's. Older releases than ours unlink
//! the log as soon as no other process holds its lock, which is what these tests are about.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{SOON, eventually};

/// Opens, reads, writes a temporary table, backs up, closes, and begins again until the stop file is there.
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
        # Not there yet, or another process is just starting.
        print(error, file=sys.stderr)
        time.sleep(0.01)
    with open(rounds_file + "~", "w") as out:
        out.write(str(rounds))
    os.replace(rounds_file + "~", rounds_file)
"#;

pub struct OutsideClient {
    child: Child,
    folder: tempfile::TempDir,
}

impl OutsideClient {
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
            .expect("python3, whose sqlite3 module is the other program");
        Self { child, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn rounds(&self) -> u64 {
        std::fs::read_to_string(self.file("rounds")).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Waits until it has opened and closed the database at least once more from now on.
    #[track_caller]
    pub fn finish_a_round(&self) {
        // The one that is under way began before.
        let want = self.rounds() + 2;
        eventually("the other program closes the database", || self.rounds() >= want);
    }
}

impl Drop for OutsideClient {
    fn drop(&mut self) {
        let _ = std::fs::write(self.file("stop"), "");
        let until = std::time::Instant::now() + SOON;
        while self.child.try_wait().ok().flatten().is_none() {
            if std::time::Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Kills and messages: four and 40, or as many as `PETASOS_OUTSIDE_KILLS` says, with ten messages each.
pub fn kills() -> u64 {
    std::env::var("PETASOS_OUTSIDE_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(4)
}
