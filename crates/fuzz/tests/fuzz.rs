//! Seeds, and a bounded number of variants of them, through every target. `PETASOS_FUZZ_INPUTS` sets the number.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use petasos_fuzz::{Mutator, TARGETS, Target};

const INPUTS: usize = 2_000;
/// A slow target gets this part of the inputs.
const SLOW: usize = 40;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn every_seed_is_accepted() {
    for target in TARGETS {
        let seeds = corpus(target);
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        for (path, seed) in seeds {
            // Seeds that once failed only have to be survived.
            let accepted = (target.run)(&seed);
            let rejected =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rejected-"));
            assert!(accepted || rejected, "{}", path.display());
        }
    }
}

#[test]
fn no_variant_of_a_seed_panics() {
    let inputs =
        std::env::var("PETASOS_FUZZ_INPUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(INPUTS);
    let seed = std::env::var("PETASOS_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(18);
    for target in TARGETS {
        let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, seed)| seed).collect();
        let mut mutator = Mutator::new(seed);
        for number in 0..if target.slow { inputs / SLOW } else { inputs } {
            let input = mutator.next(&seeds);
            if catch_unwind(|| (target.run)(&input)).is_err() {
                let kept = std::env::temp_dir().join(format!("petasos-fuzz-{}-{seed}-{number}", target.name));
                std::fs::write(&kept, &input).unwrap();
                panic!("{} panics, input {number} of seed {seed}: {}", target.name, kept.display());
            }
        }
    }
}
