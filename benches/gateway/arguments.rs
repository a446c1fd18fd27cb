//! Command line of the benchmark.

use std::path::PathBuf;

/// Seven rounds: if all of them agree on the direction of a change, chance did it once in 64 comparisons.
const ROUNDS: usize = 7;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) run: Run,
    /// Words that select cases by name.
    pub(super) cases: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Run {
    Once,
    Compare { old: PathBuf, rounds: usize },
}

impl Arguments {
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let (mut old, mut rounds, mut cases) = (None, None, vec![]);
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // cargo adds it.
                "--bench" => {}
                "--compare" => old = Some(PathBuf::from(value()?)),
                "--rounds" => rounds = Some(count(&value()?)?),
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                case => cases.push(case.to_owned()),
            }
        }
        let run = match (old, rounds) {
            (Some(old), rounds) => Run::Compare { old, rounds: rounds.unwrap_or(ROUNDS) },
            (None, None) => Run::Once,
            (None, Some(_)) => return Err("--rounds needs --compare OLD_BINARY".to_owned()),
        };
        Ok(Self { run, cases })
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| format!("not a number of rounds: {text}"))
}
