//! Damage to the files of a database at pseudo-random positions.

use std::fs;
use std::path::{Path, PathBuf};

/// Number of damaged positions: ten, or `PETASOS_DAMAGE_PLACES` (scripts/full).
pub fn damage_count() -> u64 {
    std::env::var("PETASOS_DAMAGE_PLACES").ok().and_then(|it| it.parse().ok()).unwrap_or(10)
}

/// A database, its log, its marker and its map, as a power failure leaves them.
pub struct DatabaseFiles {
    database: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl DatabaseFiles {
    pub fn read(database: &Path) -> Self {
        Self { database: database.to_owned(), files: files_of(database) }
    }

    /// Removes every file of the database and writes the original ones.
    pub fn restore(&self) {
        let name = name_of(&self.database);
        let folder = self.database.parent().expect("a home");
        for entry in fs::read_dir(folder).expect("a home").flatten() {
            let other = entry.file_name().to_string_lossy().into_owned();
            if other.trim_start_matches('.').starts_with(&name) || other == marker(&name) {
                fs::remove_file(entry.path()).expect("removable");
            }
        }
        self.files.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("writable"));
    }

    /// Flips a bit of the database or its log, or cuts one of them off. Returns a description.
    pub fn damage(&self, seed: u64) -> String {
        let file = if seed.is_multiple_of(2) { self.database.clone() } else { log_of(&self.database) };
        let mut bytes = fs::read(&file).expect("readable");
        let position = 1 + (mixed(seed) % (bytes.len() as u64 - 1)) as usize;
        let cut = seed % 5 == 4;
        if cut {
            bytes.truncate(position);
        } else {
            bytes[position] ^= 1 << (mixed(seed + 1000) % 8);
        }
        fs::write(&file, bytes).expect("writable");
        let kind = if cut { "cut" } else { "flip" };
        format!("seed {seed}: {kind} at {position} of {}", file.display())
    }

    /// Runs SQLite's integrity check on a copy of the files as they are now.
    pub fn are_sound(&self) -> bool {
        let copy = tempfile::tempdir().expect("a directory");
        for (path, bytes) in files_of(&self.database) {
            fs::write(copy.path().join(name_of(&path)), bytes).expect("writable");
        }
        let raw = rusqlite::Connection::open(copy.path().join(name_of(&self.database))).expect("a file");
        let result = raw.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        result.is_ok_and(|result| result == "ok")
    }
}

fn files_of(database: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let name = name_of(database);
    let names = [name.clone(), format!("{name}-wal"), format!(".{name}-map"), marker(&name)];
    let there = names.map(|name| database.with_file_name(name)).into_iter().filter(|path| path.exists());
    there.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

fn log_of(database: &Path) -> PathBuf {
    database.with_file_name(format!("{}-wal", name_of(database)))
}

fn marker(name: &str) -> String {
    format!(".{}-db", name.trim_end_matches(".db"))
}

/// splitmix64.
fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
