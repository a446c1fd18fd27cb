//! End-to-end benchmark: the real program against fake servers on loopback, with a model that answers at once.
//!
//! `cargo bench --bench gateway [-- CASE...]` prints a table; figures and their conditions are kept in
//! docs/performance.md. Durable commits are included in every figure. The case `stored` has goals: they are printed as
//! `ok` or `MISSED`, and a missed one makes the exit code 1. PETASOS_STORED_CHATS and PETASOS_STORED_QUIET_SECONDS make it
//! smaller.
//!
//! `cargo bench --bench gateway -- --compare OLD_BINARY [--rounds N] [CASE...]` runs the program just built and
//! `OLD_BINARY` in turn and prints the ratio new/old of every figure with its spread. Goals are not judged then.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on stops")]

#[path = "gateway/api.rs"]
mod api;
#[path = "gateway/arguments.rs"]
mod arguments;
#[path = "gateway/compare.rs"]
mod compare;
#[path = "gateway/figure.rs"]
mod figure;
#[path = "../crates/store/tests/store/fill.rs"]
mod fill;
#[path = "gateway/goal.rs"]
mod goal;
#[path = "gateway/life.rs"]
mod life;
#[path = "gateway/process.rs"]
mod process;
#[path = "gateway/ratio.rs"]
mod ratio;
#[path = "gateway/rig.rs"]
mod rig;
#[path = "gateway/stored.rs"]
mod stored;
#[path = "gateway/tools.rs"]
mod tools;
#[path = "gateway/turns.rs"]
mod turns;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use arguments::{Arguments, Run};
use figure::Figure;

const PATIENCE: Duration = Duration::from_secs(60);

/// One benchmark: what selects it, and its workload.
struct Case {
    name: &'static str,
    measure: fn(program: &Path, load: &Load) -> Vec<Figure>,
}

const CASES: &[Case] = &[
    Case { name: "start", measure: life::starts },
    Case { name: "drain", measure: life::drains },
    Case { name: "latency", measure: turns::latency },
    Case { name: "long", measure: turns::long },
    Case { name: "throughput", measure: turns::throughput },
    Case { name: "sessions", measure: turns::sessions },
    Case { name: "tools", measure: tools::measure },
    Case { name: "api", measure: api::measure },
    Case { name: stored::NAME, measure: stored::measure },
];

/// How often each workload repeats its unit.
struct Load {
    starts: usize,
    drains: usize,
    turns: usize,
    long_turns: usize,
    crowd_turns: usize,
    api_turns: usize,
    api_crowd_turns: usize,
}

impl Load {
    /// One run that gives absolute figures.
    const FULL: Self = Self {
        starts: 15,
        drains: 100,
        turns: 200,
        long_turns: 1000,
        crowd_turns: 12_000,
        api_turns: 1000,
        api_crowd_turns: 12_000,
    };
    /// One round of a comparison: shorter, because the rounds repeat it.
    const ROUND: Self = Self {
        starts: 5,
        drains: 30,
        turns: 200,
        long_turns: 400,
        crowd_turns: 3_000,
        api_turns: 400,
        api_crowd_turns: 3_000,
    };
}

fn main() -> ExitCode {
    // `cargo test --benches` builds and runs us; there is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let parsed = Arguments::parse(std::env::args().skip(1)).and_then(|it| Ok((selected(&it.cases)?, it.run)));
    let (cases, run) = match parsed {
        Ok(parsed) => parsed,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let built = Path::new(env!("CARGO_BIN_EXE_petasos"));
    match run {
        Run::Once => once(built, &cases),
        Run::Compare { old, rounds } => {
            compare::run(built, &old, rounds, &cases);
            ExitCode::SUCCESS
        }
    }
}

/// The cases whose name contains one of the words; all of them without a word.
fn selected(words: &[String]) -> Result<Vec<&'static Case>, String> {
    let wanted =
        |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str()));
    let cases: Vec<_> = CASES.iter().filter(wanted).collect();
    if cases.is_empty() {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("no such case; there are: {}", names.join(", ")));
    }
    Ok(cases)
}

fn once(program: &Path, cases: &[&Case]) -> ExitCode {
    println!("| measure | result |\n|---|---|");
    let mut all_met = true;
    for case in cases {
        let figures = (case.measure)(program, &Load::FULL);
        for figure in &figures {
            println!("| {} | {} |", figure.name, figure.shown());
        }
        if case.name == stored::NAME {
            all_met &= judge(&figures);
        }
    }
    if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the goals of the large home. `false`: one was missed.
fn judge(figures: &[Figure]) -> bool {
    let values: Vec<_> = figures.iter().map(|figure| figure.value).collect();
    let judged = goal::judge(&values);
    for it in &judged {
        println!("| goal: {} | {}: {} |", it.name, it.shown, if it.met { "ok" } else { "MISSED" });
    }
    judged.iter().all(|it| it.met)
}
