//! `petasos prove`: tests the delivery guarantees with this program, in a private home, against a chat and a
//! model that fail on purpose.
//!
//! Nothing leaves the machine. Each trial runs a gateway, injects faults, and checks what a person would have
//! seen. A failing trial names its seed, which repeats it.

mod fixture;
mod trials;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::arguments::ProveArguments;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, ERROR, SUCCESS, outln, styled};
use fixture::TrialRng;
use petasos_runtime::clock;
use trials::{TRIALS, Trial};

/// The guarantees, in the words of `docs/guarantees.md`.
const GUARANTEES: [(&str, &str); 9] = [
    ("G1", "accepted means durable"),
    ("G2", "every accepted message has exactly one visible outcome"),
    ("G3", "one turn per message"),
    ("G4", "an answer and its delivery are one commit"),
    ("G5", "never the wrong chat"),
    ("G6", "a drain is reversible and bounded"),
    ("G7", "links recover by themselves"),
    ("G8", "background work reports once"),
    ("G9", "nothing grows without a bound or a warning"),
];

#[derive(Debug, Serialize)]
struct TrialResult {
    name: &'static str,
    promises: &'static [&'static str],
    seed: u64,
    ms: u128,
    /// `None` if the trial passed.
    failure: Option<String>,
}

#[derive(Debug, Serialize)]
struct GuaranteeResult {
    promise: &'static str,
    #[serde(rename = "words")]
    description: &'static str,
    /// `pass`, `fail` or `not_tried`.
    result: &'static str,
    trials: usize,
    failures: usize,
}

#[derive(Debug, Serialize)]
struct ProofReport {
    seed: u64,
    seconds: u64,
    promises: Vec<GuaranteeResult>,
    trials: Vec<TrialResult>,
}

pub fn prove(context: &Context, arguments: &ProveArguments) -> Result<ExitCode, Failure> {
    let seed = arguments.seed.unwrap_or_else(|| print::now().0 % 1_000_000);
    let started = clock::monotonic();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let mut progress = ProgressBar::new(context.json);
    let mut results = Vec::new();
    for round in 0.. {
        for (at, trial) in TRIALS.iter().enumerate() {
            if round > 0 && limit.is_none_or(|limit| started.elapsed() >= limit) {
                break;
            }
            let done = match limit {
                Some(limit) => started.elapsed().as_millis() * 100 / limit.as_millis().max(1),
                None => (at * 100 / TRIALS.len()) as u128,
            };
            progress.show(done.min(99), trial.name);
            results.push(run(trial, seed.wrapping_add(round))?);
        }
        if limit.is_none_or(|limit| started.elapsed() >= limit) {
            break;
        }
    }
    progress.clear();
    let report = ProofReport {
        seed,
        seconds: started.elapsed().as_secs(),
        promises: guarantee_results(&results),
        trials: results,
    };
    let failed = report.trials.iter().any(|it| it.failure.is_some());
    if context.json {
        print::json(&report)?;
    } else {
        print_report(&report);
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn run(trial: &Trial, seed: u64) -> Result<TrialResult, Failure> {
    let started = clock::monotonic();
    let mut rng = TrialRng::new(seed, trial.name);
    let failure = (trial.run)(&mut rng).map_err(Failure::new)?.err();
    let Trial { name, promises, .. } = *trial;
    Ok(TrialResult { name, promises, seed, ms: started.elapsed().as_millis(), failure })
}

fn guarantee_results(results: &[TrialResult]) -> Vec<GuaranteeResult> {
    let guarantee = |(promise, description): &(&'static str, &'static str)| {
        let about = || results.iter().filter(|it| it.promises.contains(promise));
        let trials = about().count();
        let failures = about().filter(|it| it.failure.is_some()).count();
        let result = match (trials, failures) {
            (0, _) => "not_tried",
            (_, 0) => "pass",
            (_, _) => "fail",
        };
        GuaranteeResult { promise, description, result, trials, failures }
    };
    GUARANTEES.iter().map(guarantee).collect()
}

fn print_report(report: &ProofReport) {
    for GuaranteeResult { promise, description, result, trials, failures } in &report.promises {
        let (style, word) = match *result {
            "pass" => (SUCCESS, "pass"),
            "fail" => (ERROR, "FAIL"),
            _ => (DIM, "not tested"),
        };
        let count = if *failures > 0 {
            format!("{failures} of {}", print::count(*trials as u64, "trial", "trials"))
        } else {
            print::count(*trials as u64, "trial", "trials")
        };
        outln!("{promise}  {description:<44}  {}  {}", styled(style, word), styled(DIM, &count.to_string()));
    }
    for failed in report.trials.iter().filter(|it| it.failure.is_some()) {
        let why = failed.failure.as_deref().unwrap_or_default();
        outln!("\n{} {}: {why}", styled(ERROR, "failed:"), failed.name);
        outln!("  repeat with: petasos prove --seed {}", failed.seed);
    }
    let count = report.trials.len();
    let seconds = report.seconds;
    outln!("\n{} seed {}, {count} trials in {seconds} s", styled(BOLD, "Done:"), report.seed);
}

struct ProgressBar {
    drawn: bool,
    shown: bool,
}

impl ProgressBar {
    fn new(json: bool) -> Self {
        Self { drawn: !json && std::io::stderr().is_terminal(), shown: false }
    }

    fn show(&mut self, percent: u128, what: &str) {
        if !self.drawn {
            return;
        }
        self.shown = true;
        let full = usize::try_from(percent / 5).unwrap_or_default();
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(20usize.saturating_sub(full)));
        let mut out = anstream::stderr().lock();
        let _reader_gone = write!(out, "\r\x1b[K{bar} {percent:>3} %  {what}").and_then(|()| out.flush());
    }

    fn clear(&mut self) {
        if self.shown {
            let mut out = anstream::stderr().lock();
            let _reader_gone = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(promises: &'static [&'static str], failure: Option<&str>) -> TrialResult {
        TrialResult { name: "a trial", promises, seed: 7, ms: 1, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn failed_trial_fails_only_its_guarantees() {
        let guarantee_results = guarantee_results(&[
            results(&["G1", "G2"], None),
            results(&["G2", "G4"], Some("a copy")),
            results(&["G4"], None),
        ]);
        let results: Vec<_> = guarantee_results
            .iter()
            .map(|guarantee| (guarantee.result, guarantee.trials, guarantee.failures))
            .collect();
        assert_eq!(results[0], ("pass", 1, 0));
        assert_eq!(results[1], ("fail", 2, 1));
        assert_eq!(results[3], ("fail", 2, 1));
        assert!(results[4..].iter().all(|guarantee| *guarantee == ("not_tried", 0, 0)));
    }

    #[test]
    fn every_guarantee_has_a_trial() {
        for (promise, description) in GUARANTEES {
            assert!(TRIALS.iter().any(|trial| trial.promises.contains(&promise)), "{promise}: {description}");
        }
        let known = |name: &&str| GUARANTEES.iter().any(|(promise, _)| promise == name);
        assert!(TRIALS.iter().flat_map(|trial| trial.promises).all(known));
    }
}
