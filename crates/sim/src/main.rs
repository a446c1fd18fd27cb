//! `petasos-sim replay CASE` tells a case again; `petasos-sim soak SEEDS [FIRST]` runs many and keeps what fails.

#![allow(clippy::expect_used, reason = "a tool for whoever develops")]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use petasos_sim::{Case, Figures, Scenario, Story, run, shrink, workshop};

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
        ["soak", seeds] => soak(seeds.parse().unwrap_or(10_000), 0),
        ["soak", seeds, first] => soak(seeds.parse().unwrap_or(10_000), first.parse().unwrap_or(0)),
        _ => usage("say what to do"),
    }
}

fn usage(error: &str) -> ExitCode {
    let names: Vec<_> = Scenario::ALL.iter().map(|it| it.name()).collect();
    eprintln!("{error}\nusage: petasos-sim replay SCENARIO:SEED | petasos-sim soak SEEDS [FIRST]");
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

fn soak(seeds: u64, first: u64) -> ExitCode {
    let shop = workshop();
    let started = Instant::now();
    let (mut total, mut failed) = (Figures::default(), 0);
    for seed in first..first + seeds {
        match run(&Case::of_seed(seed), None, shop.path(), Story::Untold) {
            Ok(figures) => add(&mut total, figures),
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

fn add(total: &mut Figures, one: Figures) {
    total.steps += one.steps;
    total.commits += one.commits;
    total.crashes += one.crashes;
    total.stops += one.stops;
    total.faults += one.faults;
    total.calls += one.calls;
    total.sends += one.sends;
}

/// What failed once is tried for ever.
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
