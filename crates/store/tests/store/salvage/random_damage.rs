//! Bit flips and truncations at random offsets of database and log, and wrong child pointers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::{OpenError, Salvage, Store};
use rusqlite::Connection;

use crate::fixture::NOW;

use super::fill::filled;
use super::{copied, dump, is_listed};

const PLACES: u64 = 200;

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

pub(super) type Opened = Result<(Store, Option<Salvage>), OpenError>;

/// A kind of database.
pub(super) struct Subject {
    pub(super) open: fn(&Path) -> Opened,
    pub(super) repair: fn(&Path) -> Result<Option<Salvage>, OpenError>,
    /// Tables whose lost rows are restored from others.
    pub(super) restored: &'static [&'static str],
}

#[test]
fn salvages_damage_at_random_places_and_lists_every_loss() {
    let gateway = Subject {
        open: |path| Store::open_or_salvage(path, NOW),
        repair: |path| Store::repair(path, NOW),
        restored: &[],
    };
    check_random_damage(&filled().path(), &gateway, |_path, _case| {});
}

/// `check`: of each database after its salvage.
pub(super) fn check_random_damage(home: &Path, subject: &Subject, check: impl Fn(&Path, &str)) {
    // The last connection that closes checkpoints the log.
    let (_original, original) = copied(home);
    let rows = dump(&original);
    let mut undetected = 0;
    for seed in 0..PLACES {
        let mut rng = Rng(seed);
        let (_folder, path) = copied(home);
        let log = seed % 2 == 1;
        let file = if log { PathBuf::from(format!("{}-wal", path.display())) } else { path.clone() };
        let mut bytes = fs::read(&file).unwrap();
        let place = rng.below(bytes.len() - 1) + 1;
        let cut = seed % 5 == 4;
        if cut {
            bytes.truncate(place);
        } else {
            bytes[place] ^= 1 << rng.below(8);
        }
        fs::write(&file, bytes).unwrap();
        let case = format!("seed {seed}, {} of {file:?} at {place}", if cut { "truncation" } else { "flip" });
        let opened = (subject.open)(&path);
        let (store, report) = opened.unwrap_or_else(|error| panic!("{case}: {error}"));
        store.close().unwrap();
        // A repair reads every row, and finds damage that a start does not check for.
        let report = report.or_else(|| (subject.repair)(&path).unwrap());
        check(&path, &case);
        let after = dump(&path);
        if log && (cut || report.is_none()) {
            continue; // Like a power cut: the end of the log, or its last commit, is gone.
        }
        let gone = rows.iter().filter(|(key, row)| after.get(*key) != Some(*row));
        let unlisted: Vec<_> = gone
            .filter(|((table, key), _)| !report.as_ref().is_some_and(|report| is_listed(report, table, key)))
            .map(|(key, _)| key)
            .collect();
        let text = report.map(|report| report.text()).unwrap_or_default();
        assert!(unlisted.len() <= usize::from(!cut), "{case}: {unlisted:?}\n{text}");
        let unlisted = unlisted.len();
        undetected += unlisted;
        // A damaged log restores older page versions.
        let invented = after.keys().filter(|key| !log && !rows.contains_key(*key));
        let invented: Vec<_> =
            invented.filter(|(table, _)| !subject.restored.contains(&table.as_str())).collect();
        // A flip within a key changes a row into another one.
        assert!(invented.len() <= unlisted, "{case}: {invented:?}\n{text}");
    }
    assert!(undetected < 100, "{undetected} flips within values, which nothing shows");
}

fn pages(path: &Path, kind: &str) -> Vec<(String, usize)> {
    let raw = Connection::open(path).unwrap();
    let mut read = raw.prepare("SELECT name, pageno FROM dbstat WHERE pagetype = ?1").unwrap();
    let found = read.query_map([kind], |row| Ok((row.get(0)?, row.get::<_, u32>(1)? as usize))).unwrap();
    found.map(Result::unwrap).collect()
}

#[test]
fn child_pointers_to_other_tables_invent_no_rows() {
    let (_folder, sound) = copied(&filled().path());
    Store::open(&sound).unwrap().close().unwrap();
    let rows = dump(&sound);
    let bytes = fs::read(&sound).unwrap();
    // Last leaf of each tree.
    let leaves: BTreeMap<String, usize> = pages(&sound, "leaf").into_iter().collect();
    let leaves: Vec<_> = leaves.into_iter().collect();
    let inner = pages(&sound, "internal");
    assert!(inner.len() > 20, "many tables have inner pages");
    let mut invented = BTreeMap::new();
    // Replaces the last child of every tree by every leaf in turn.
    for shift in 0..leaves.len() {
        let (_folder, path) = copied(&sound);
        let mut damaged = bytes.clone();
        for (number, (_, page)) in inner.iter().enumerate() {
            let leaf = leaves[(number + shift) % leaves.len()].1;
            let right = (page - 1) * 4096 + 8;
            damaged[right..right + 4].copy_from_slice(&u32::try_from(leaf).unwrap().to_be_bytes());
        }
        fs::write(&path, damaged).unwrap();
        Store::note_damage(&path, "a read failed").unwrap();
        Store::open_or_salvage(&path, NOW).unwrap().0.close().unwrap();
        for (table, key) in dump(&path).into_keys().filter(|key| !rows.contains_key(key)) {
            invented.insert((shift, table), key);
        }
    }
    assert!(invented.is_empty(), "{invented:#?}");
}
