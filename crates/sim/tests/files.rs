//! Files of the home that a power cut must not remove. The recorder is linked into this test program.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use petasos_core::Millis;
use petasos_core::lifecycle::restart_breaker::RestartBreaker;
use petasos_gateway::home::{boots, clean, drain};
use petasos_power_cut::{UnsyncedData, apply, record};

#[track_caller]
fn check(file: impl Fn(&Path) -> std::path::PathBuf, write: impl Fn(&Path)) {
    let home = tempfile::tempdir().expect("a home");
    record(home.path());
    write(home.path());
    let path = file(home.path());
    let written = std::fs::read(&path).expect("written");
    let lost = apply(home.path(), UnsyncedData::Dropped);
    let left = std::fs::read(&path).ok();
    assert_eq!(left, Some(written), "{} after a power cut: {lost:?}", path.display());
}

#[test]
fn synced_files_of_the_home_survive_power_cut() {
    check(drain::path, |home| {
        drain::write(home, &drain::DrainRequest::default(), Millis(1)).expect("written");
    });
    check(clean::path, |home| clean::write(home).expect("written"));
    let breaker = RestartBreaker::default();
    // Its directory is new as well.
    check(boots::path, |home| boots::load(home, breaker, Millis(1)).store(home, breaker));
}
