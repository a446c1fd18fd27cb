//! Command line of the benchmark.

use std::path::PathBuf;

/// With seven rounds, all agree by chance in one of 64 comparisons.
const ROUNDS: usize = 7;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct BenchArguments {
    pub(super) run: RunMode,
    pub(super) workloads: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunMode {
    Once,
    Compare { old: PathBuf, rounds: usize },
}

impl BenchArguments {
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut old = None;
        let mut rounds = None;
        let mut workloads = vec![];
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // Added by cargo.
                "--bench" => {}
                "--compare" => old = Some(PathBuf::from(value()?)),
                "--rounds" => rounds = Some(count(&value()?)?),
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                workload => workloads.push(workload.to_owned()),
            }
        }
        let run = match (old, rounds) {
            (Some(old), rounds) => RunMode::Compare { old, rounds: rounds.unwrap_or(ROUNDS) },
            (None, None) => RunMode::Once,
            (None, Some(_)) => return Err("--rounds needs --compare OLD_BINARY".to_owned()),
        };
        Ok(Self { run, workloads })
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| format!("not a number of rounds: {text}"))
}
