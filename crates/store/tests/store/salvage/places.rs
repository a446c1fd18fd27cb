//! Bit flips and truncations at random places of database and log.

use std::fs;

use petasos_store::Store;

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

#[test]
fn opens_after_damage_at_two_hundred_places_and_lists_what_it_lost() {
    let home = filled();
    let rows = dump(&home.path());
    let mut undetected = 0;
    for seed in 0..PLACES {
        let mut rng = Rng(seed);
        let (_folder, path) = copied(&home.path());
        let log = seed % 2 == 1;
        let file = if log { path.with_file_name("petasos.db-wal") } else { path.clone() };
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
        let (store, report) =
            Store::open_or_salvage(&path, NOW).unwrap_or_else(|error| panic!("{case}: {error}"));
        store.close().unwrap();
        // `doctor --repair` finds damage that a start does not check for, because it reads every row.
        let report = report.or_else(|| Store::repair(&path, NOW).unwrap());
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
        undetected += unlisted.len();
    }
    assert!(undetected < 100, "{undetected} flips within values, which nothing shows");
}
