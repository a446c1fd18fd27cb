//! `petasos-sim replay CASE` tells a case again; `petasos-sim soak SEEDS [FIRST [SCENARIO]]` runs many and keeps what fails;
//! `petasos-sim find BUG` names the first seed that shows a planted bug.

#![allow(clippy::expect_used, reason = "a tool for developers")]

use std::io::Write;
use std::process::ExitCode;

use petasos_runtime::clock;
use petasos_sim::{Bug, Case, Figures, Scenario, Story, run, shrink, workshop};

/// Cases that once failed; the ordinary tests run them all.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions.txt");

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["replay", case] => match case.parse() {
            Ok(case) => replay(&case),
            Err(error) => usage(&error),
        },
        ["soak", seeds] => soak(seeds, "0", None),
        ["soak", seeds, first] => soak(seeds, first, None),
        ["soak", seeds, first, name] => match Scenario::named(name) {
            Some(scenario) => soak(seeds, first, Some(scenario)),
            None => usage("no scenario is called that"),
        },
        ["find", name] => match Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == *name) {
            Some(bug) => find(bug),
            None => usage("no planted bug is called that"),
        },
        _ => usage("say what to do"),
    }
}

fn usage(error: &str) -> ExitCode {
    let names: Vec<_> = Scenario::ALL.iter().map(|it| it.name()).collect();
    eprintln!(
        "{error}\nusage: petasos-sim replay SCENARIO:SEED | petasos-sim soak SEEDS [FIRST [SCENARIO]] | petasos-sim find BUG"
    );
    eprintln!("scenarios: {}", names.join(", "));
    ExitCode::from(2)
}

fn replay(case: &Case) -> ExitCode {
    let shop = workshop();
    match run(case, None, shop.path(), Story::Told) {
        Ok(figures) => {
            println!("{case} keeps every promise: {figures:?}");
            ExitCode::SUCCESS
        }
        Err(broken) => {
            broken.story.iter().for_each(|line| println!("{line}"));
            println!("{case} breaks {}", broken.violation);
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds of the scenario that is about a bug until its check fails.
fn find(bug: Bug) -> ExitCode {
    const SEEDS: u64 = 500;
    let shop = workshop();
    for seed in 0..SEEDS {
        if let Err(broken) = run(&Case::new(bug.shows_in(), seed), Some(bug), shop.path(), Story::Untold) {
            println!("{bug:?}: seed {seed}, {}", broken.violation);
            return ExitCode::SUCCESS;
        }
    }
    println!("{bug:?}: not found within {SEEDS} seeds");
    ExitCode::FAILURE
}

/// Of all scenarios in turn, or of one.
fn soak(seeds: &str, first: &str, scenario: Option<Scenario>) -> ExitCode {
    let (Ok(seeds), Ok(first)) = (seeds.parse::<u64>(), first.parse::<u64>()) else {
        return usage("seeds are numbers");
    };
    let shop = workshop();
    let started = clock::monotonic();
    let mut total = Figures::default();
    let mut failed = 0;
    for seed in first..first + seeds {
        let case = scenario.map_or_else(|| Case::of_seed(seed), |scenario| Case::new(scenario, seed));
        match run(&case, None, shop.path(), Story::Untold) {
            Ok(figures) => total.add(figures),
            Err(broken) => {
                failed += 1;
                let broken = shrink(broken, None, shop.path());
                eprintln!("\n{} breaks {}\n  {}", broken.case, broken.violation, broken.case.command());
                keep(&broken.case);
            }
        }
        let done = seed - first + 1;
        if done.is_multiple_of(50) || done == seeds {
            eprint!("\r{done} of {seeds} seeds, {failed} violations, {} s ", started.elapsed().as_secs());
        }
    }
    eprintln!();
    println!("{seeds} seeds, {failed} violations: {total:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds that failed once are always run.
fn keep(case: &Case) {
    let known = std::fs::read_to_string(REGRESSIONS).unwrap_or_default();
    if known.lines().any(|line| line == case.to_string()) {
        return;
    }
    let file = std::fs::OpenOptions::new().create(true).append(true).open(REGRESSIONS);
    let kept = file.and_then(|mut file| writeln!(file, "{case}"));
    if let Err(error) = kept {
        eprintln!("{case} could not be written down: {error}");
    }
}
