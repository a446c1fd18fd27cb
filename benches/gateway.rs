//! End-to-end benchmark: the real program with fake servers on loopback, and a model that answers at once.
//!
//! `cargo bench --bench gateway [-- WORKLOAD...]` prints a table; results and their conditions are in docs/performance.md.
//! Every figure includes durable commits. The workload `stored` has goals, printed as `ok` or `MISSED`; a missed goal makes
//! the exit code 1. PETASOS_STORED_CHATS and PETASOS_STORED_QUIET_SECONDS make it smaller.
//!
//! `cargo bench --bench gateway -- --compare OLD_BINARY [--rounds N] [WORKLOAD...]` alternates the program just built with
//! `OLD_BINARY`, and prints the ratio new/old of every figure with its spread. Goals are not checked.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
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
#[path = "gateway/fixture.rs"]
mod fixture;
#[path = "gateway/goal.rs"]
mod goal;
#[path = "gateway/lifecycle.rs"]
mod lifecycle;
#[path = "gateway/process.rs"]
mod process;
#[path = "gateway/ratio.rs"]
mod ratio;
#[path = "gateway/stored.rs"]
mod stored;
#[path = "gateway/tools.rs"]
mod tools;
#[path = "gateway/turns.rs"]
mod turns;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use arguments::{BenchArguments, RunMode};
use figure::Figure;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A workload and the name that selects it.
struct Workload {
    name: &'static str,
    measure: fn(program: &Path, load: &Load) -> Vec<Figure>,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "start", measure: lifecycle::starts },
    Workload { name: "drain", measure: lifecycle::drains },
    Workload { name: "latency", measure: turns::latency },
    Workload { name: "long", measure: turns::long },
    Workload { name: "throughput", measure: turns::throughput },
    Workload { name: "sessions", measure: turns::sessions },
    Workload { name: "tools", measure: tools::measure },
    Workload { name: "api", measure: api::measure },
    Workload { name: stored::NAME, measure: stored::measure },
];

/// Repetitions per workload.
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
    /// A single run with absolute figures.
    const FULL: Self = Self {
        starts: 15,
        drains: 100,
        turns: 200,
        long_turns: 1000,
        crowd_turns: 12_000,
        api_turns: 1000,
        api_crowd_turns: 12_000,
    };
    /// One round of a comparison, shortened because rounds repeat.
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
    // `cargo test --benches` also runs this binary; it must do nothing then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let parsed =
        BenchArguments::parse(std::env::args().skip(1)).and_then(|it| Ok((selected(&it.workloads)?, it.run)));
    let (workloads, run) = match parsed {
        Ok(parsed) => parsed,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let built = Path::new(env!("CARGO_BIN_EXE_petasos"));
    match run {
        RunMode::Once => once(built, &workloads),
        RunMode::Compare { old, rounds } => {
            compare::run(built, &old, rounds, &workloads);
            ExitCode::SUCCESS
        }
    }
}

/// Workloads whose name contains one of the words; all without words.
fn selected(words: &[String]) -> Result<Vec<&'static Workload>, String> {
    let wanted = |workload: &&Workload| {
        words.is_empty() || words.iter().any(|word| workload.name.contains(word.as_str()))
    };
    let workloads: Vec<_> = WORKLOADS.iter().filter(wanted).collect();
    if workloads.is_empty() {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(format!("no such workload; there are: {}", names.join(", ")));
    }
    Ok(workloads)
}

fn once(program: &Path, workloads: &[&Workload]) -> ExitCode {
    println!("| measure | result |\n|---|---|");
    let mut all_met = true;
    for workload in workloads {
        let figures = (workload.measure)(program, &Load::FULL);
        for figure in &figures {
            println!("| {} | {} |", figure.name, figure.shown());
        }
        if workload.name == stored::NAME {
            all_met &= check_goals(&figures);
        }
    }
    if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the goals of the large home. `false`: one was missed.
fn check_goals(figures: &[Figure]) -> bool {
    let values: Vec<_> = figures.iter().map(|figure| figure.value).collect();
    let judged = goal::judge(&values);
    for it in &judged {
        println!("| goal: {} | {}: {} |", it.name, it.shown, if it.met { "ok" } else { "MISSED" });
    }
    judged.iter().all(|it| it.met)
}
