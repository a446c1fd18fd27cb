//! Seeds that must keep every guarantee, and planted bugs that must be found.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use petasos_sim::{Broken, Bug, Case, Figures, Promise, Scenario, Story, run, shrink, trace, workshop};

/// Seeds per test run; `scripts/soak` runs more.
const SEEDS: u64 = 240;
/// Seeds within which a planted bug must be found.
const ENOUGH: u64 = 500;

#[track_caller]
fn fail(broken: Box<Broken>, folder: &Path) -> ! {
    let small = shrink(broken, None, folder);
    panic!("{} breaks {}\nsee it again with: {}", small.case, small.violation, small.case.command());
}

fn all_keep_their_promises(seeds: impl Iterator<Item = u64>) {
    let shop = workshop();
    let mut total = Figures::default();
    for seed in seeds {
        match run(&Case::of_seed(seed), None, shop.path(), Story::Untold) {
            Ok(figures) => total.add(figures),
            Err(broken) => fail(broken, shop.path()),
        }
    }
    // Guards against runs in which nothing happens.
    assert!(total.commits > 5_000 && total.sends > 1_000 && total.calls > 500, "{total:?}");
    assert!(
        total.crashes > 40 && total.power_cuts > 15 && total.faults > 200 && total.stops > 10,
        "{total:?}"
    );
    assert!(total.held > 3, "{total:?}");
    assert!(total.grants > 5 && total.sleeps > 3 && total.refusals > 50, "{total:?}");
    assert!(total.consents > 1 && total.denials > 10 && total.summaries > 10, "{total:?}");
    assert!(total.fetches > 15 && total.files > 8 && total.runs > 25, "{total:?}");
}

#[test]
fn keeps_every_guarantee_first_half() {
    all_keep_their_promises(0..SEEDS / 2);
}

#[test]
fn keeps_every_guarantee_second_half() {
    all_keep_their_promises(SEEDS / 2..SEEDS);
}

#[test]
fn past_failures_do_not_return() {
    let shop = workshop();
    for line in
        include_str!("regressions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let case: Case = line.parse().expect(line);
        if let Err(broken) = run(&case, None, shop.path(), Story::Untold) {
            fail(broken, shop.path());
        }
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    let shop = workshop();
    for scenario in Scenario::ALL {
        let case = Case::new(scenario, 77);
        let once = run(&case, None, shop.path(), Story::Untold).expect("kept");
        let again = run(&case, None, shop.path(), Story::Told).expect("kept");
        assert_eq!(once, again, "{case}");
    }
}

#[test]
fn two_runs_of_one_seed_take_the_same_decisions() {
    let shop = workshop();
    let mut seeds_differ = false;
    for scenario in Scenario::ALL {
        let traces = [77, 77, 78].map(|seed| trace(&Case::new(scenario, seed), shop.path()));
        assert_eq!(traces[0], traces[1], "{}", scenario.name());
        seeds_differ |= traces[1] != traces[2];
    }
    assert!(seeds_differ, "the trace says nothing");
}

/// The first seed of its scenario that shows the bug.
#[track_caller]
fn find(bug: Bug) -> (u64, Box<Broken>) {
    let shop = workshop();
    for seed in 0..ENOUGH {
        if let Err(broken) = run(&Case::new(bug.shows_in(), seed), Some(bug), shop.path(), Story::Untold) {
            return (seed, broken);
        }
    }
    panic!("{bug:?} was not found within {ENOUGH} seeds");
}

/// Tests of [`Bug::ALL`], split so that they run in parallel.
const PARTS: usize = 4;

#[track_caller]
fn planted_bugs_are_found_as_what_they_break(part: usize) {
    for bug in Bug::ALL.into_iter().skip(part).step_by(PARTS) {
        let (seed, broken) = find(bug);
        let found = broken.violation.promise;
        assert!(bug.breaks().contains(&found), "{bug:?} was found by seed {seed} as {}", broken.violation);
        println!("{bug:?}: seed {seed}, {}", broken.violation);
    }
}

#[test]
fn every_planted_bug_is_found_first_part() {
    planted_bugs_are_found_as_what_they_break(0);
}

#[test]
fn every_planted_bug_is_found_second_part() {
    planted_bugs_are_found_as_what_they_break(1);
}

#[test]
fn every_planted_bug_is_found_third_part() {
    planted_bugs_are_found_as_what_they_break(2);
}

#[test]
fn every_planted_bug_is_found_fourth_part() {
    planted_bugs_are_found_as_what_they_break(3);
}

#[test]
fn every_guarantee_has_a_bug_that_breaks_it() {
    for promise in Promise::ALL {
        assert!(
            Bug::ALL.iter().any(|bug| bug.breaks().contains(&promise)),
            "{promise} is never put to the test"
        );
    }
}

#[test]
fn shrinks_failing_case_to_the_same_failure() {
    let shop = workshop();
    let (_, broken) = find(Bug::UnmarkedCopy);
    let was = broken.case;
    let promise = broken.violation.promise;
    let small = shrink(broken, Some(Bug::UnmarkedCopy), shop.path());
    assert_eq!(small.violation.promise, promise);
    assert_ne!(small.case, was, "nothing could be left out");
    let text = small.case.to_string();
    let again: Case = text.parse().expect("a case");
    let replayed =
        run(&again, Some(Bug::UnmarkedCopy), shop.path(), Story::Told).expect_err("it fails again");
    assert_eq!(replayed.violation, small.violation);
    assert!(!replayed.story.is_empty());
}
