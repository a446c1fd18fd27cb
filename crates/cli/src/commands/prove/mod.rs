//! `petasos prove`: this very program, in a private home, with a chat and a model that fail on purpose.
//!
//! Nothing leaves the machine. Every trial is a life of a gateway with something done to it; what a person would have
//! seen decides. A failing trial names its seed, and the same seed does the same again.

mod rig;
mod trials;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Context;
use crate::arguments::Prove;
use crate::failure::Failure;
use crate::print::{self, BAD, BOLD, DIM, GOOD, say, styled};
use rig::Dice;
use trials::{TRIALS, Trial};

/// The promises, in the words of `docs/guarantees.md`.
const PROMISES: [(&str, &str); 9] = [
    ("G1", "accepted means durable"),
    ("G2", "every message ends in one visible outcome"),
    ("G3", "one turn per message, no effect repeated"),
    ("G4", "delivered at least once, no unmarked copy"),
    ("G5", "never the wrong chat"),
    ("G6", "a drain is reversible and bounded"),
    ("G7", "a link that breaks comes back"),
    ("G8", "ended background work is told once"),
    ("G9", "nothing grows without a bound"),
];

#[derive(Debug, Serialize)]
struct Tried {
    name: &'static str,
    promises: &'static [&'static str],
    seed: u64,
    ms: u128,
    /// `None`: it went well.
    failure: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    promise: &'static str,
    words: &'static str,
    /// `pass`, `fail` or `not_tried`.
    result: &'static str,
    trials: usize,
    failures: usize,
}

#[derive(Debug, Serialize)]
struct Proof {
    seed: u64,
    seconds: u64,
    promises: Vec<Row>,
    trials: Vec<Tried>,
}

pub fn prove(context: &Context, wanted: &Prove) -> Result<ExitCode, Failure> {
    let seed = wanted.seed.unwrap_or_else(|| print::now().0 % 1_000_000);
    let started = Instant::now();
    let most = wanted.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let mut bar = Bar::new(context.json);
    let mut tried = Vec::new();
    for round in 0.. {
        for (at, trial) in TRIALS.iter().enumerate() {
            if round > 0 && most.is_none_or(|most| started.elapsed() >= most) {
                break;
            }
            let done = match most {
                Some(most) => started.elapsed().as_millis() * 100 / most.as_millis().max(1),
                None => (at * 100 / TRIALS.len()) as u128,
            };
            bar.show(done.min(99), trial.name);
            tried.push(run(trial, seed.wrapping_add(round))?);
        }
        if most.is_none_or(|most| started.elapsed() >= most) {
            break;
        }
    }
    bar.clear();
    let proof = Proof { seed, seconds: started.elapsed().as_secs(), promises: rows(&tried), trials: tried };
    let failed = proof.trials.iter().any(|it| it.failure.is_some());
    if context.json {
        print::json(&proof)?;
    } else {
        tell(&proof);
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn run(trial: &Trial, seed: u64) -> Result<Tried, Failure> {
    let started = Instant::now();
    let mut dice = Dice::new(seed, trial.name);
    let failure = (trial.run)(&mut dice).map_err(Failure::new)?.err();
    let Trial { name, promises, .. } = *trial;
    Ok(Tried { name, promises, seed, ms: started.elapsed().as_millis(), failure })
}

fn rows(tried: &[Tried]) -> Vec<Row> {
    let row = |(promise, words): &(&'static str, &'static str)| {
        let about = || tried.iter().filter(|it| it.promises.contains(promise));
        let (trials, failures) = (about().count(), about().filter(|it| it.failure.is_some()).count());
        let result = match (trials, failures) {
            (0, _) => "not_tried",
            (_, 0) => "pass",
            (_, _) => "fail",
        };
        Row { promise, words, result, trials, failures }
    };
    PROMISES.iter().map(row).collect()
}

fn tell(proof: &Proof) {
    for Row { promise, words, result, trials, failures } in &proof.promises {
        let (style, word) = match *result {
            "pass" => (GOOD, "pass"),
            "fail" => (BAD, "FAIL"),
            _ => (DIM, "not tried here"),
        };
        let count = if *failures > 0 { format!("{failures} of {trials}") } else { format!("{trials}") };
        say!("{promise}  {words:<44}  {}  {}", styled(style, word), styled(DIM, &format!("{count} trials")));
    }
    for failed in proof.trials.iter().filter(|it| it.failure.is_some()) {
        let why = failed.failure.as_deref().unwrap_or_default();
        say!("\n{} {}: {why}", styled(BAD, "failed:"), failed.name);
        say!("  again with: petasos prove --seed {}", failed.seed);
    }
    let (count, seconds) = (proof.trials.len(), proof.seconds);
    say!("\n{} seed {}, {count} trials in {seconds} s", styled(BOLD, "Done:"), proof.seed);
}

/// How far it has got. Drawn only where somebody looks.
struct Bar {
    drawn: bool,
    shown: bool,
}

impl Bar {
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

    fn tried(promises: &'static [&'static str], failure: Option<&str>) -> Tried {
        Tried { name: "a trial", promises, seed: 7, ms: 1, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn one_broken_trial_breaks_every_promise_it_is_about_and_no_other() {
        let rows =
            rows(&[tried(&["G1", "G2"], None), tried(&["G2", "G4"], Some("a copy")), tried(&["G4"], None)]);
        let results: Vec<_> = rows.iter().map(|row| (row.result, row.trials, row.failures)).collect();
        assert_eq!(results[0], ("pass", 1, 0));
        assert_eq!(results[1], ("fail", 2, 1));
        assert_eq!(results[3], ("fail", 2, 1));
        assert!(results[4..].iter().all(|row| *row == ("not_tried", 0, 0)));
    }

    #[test]
    fn every_promise_is_tried() {
        for (promise, words) in PROMISES {
            assert!(TRIALS.iter().any(|trial| trial.promises.contains(&promise)), "{promise}: {words}");
        }
        let known = |name: &&str| PROMISES.iter().any(|(promise, _)| promise == name);
        assert!(TRIALS.iter().flat_map(|trial| trial.promises).all(known));
    }
}
