//! Compares two programs under the same workloads, alternating, so that other load on the machine affects both.

use std::path::Path;

use super::figure::{Figure, Unit};
use super::ratio::{Ratio, Trend, median};
use super::{Load, Workload};

/// One figure of one program, per round.
struct Column {
    name: String,
    unit: Unit,
    rounds: Vec<f64>,
}

pub(super) fn run(new: &Path, old: &Path, rounds: usize, workloads: &[&Workload]) {
    let old = &old.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", old.display()));
    println!("new: {}\nold: {}\n{rounds} rounds\n", new.display(), old.display());
    println!(
        "| measure | old, median | new, median | new/old, median | range | |\n|---|---|---|---|---|---|"
    );
    for workload in workloads {
        compare(workload, new, old, rounds);
    }
}

fn compare(workload: &Workload, new: &Path, old: &Path, rounds: usize) {
    let mut news = vec![];
    let mut olds = vec![];
    let measure =
        |program: &Path, columns: &mut Vec<Column>| add(columns, (workload.measure)(program, &Load::ROUND));
    for round in 0..rounds {
        eprintln!("{}: round {} of {rounds}", workload.name, round + 1);
        // Alternates the order, because the second program finds a warmer machine.
        if round % 2 == 0 {
            measure(new, &mut news);
            measure(old, &mut olds);
        } else {
            measure(old, &mut olds);
            measure(new, &mut news);
        }
    }
    for (new, old) in news.iter().zip(&olds) {
        println!("{}", line(new, old));
    }
}

fn add(columns: &mut Vec<Column>, figures: Vec<Figure>) {
    if columns.is_empty() {
        let column =
            |figure: &Figure| Column { name: figure.name.clone(), unit: figure.unit(), rounds: vec![] };
        columns.extend(figures.iter().map(column));
    }
    for (column, figure) in columns.iter_mut().zip(figures) {
        column.rounds.push(figure.value);
    }
}

fn line(new: &Column, old: &Column) -> String {
    let ratio = Ratio::of(&new.rounds, &old.rounds).map_or_else(
        || "not comparable | |".to_owned(),
        |it| format!("{:.3} | {:.3} to {:.3} | {}", it.median, it.least, it.most, word(it.trend())),
    );
    format!("| {} | {} | {} | {ratio} |", new.name, old.middle(), new.middle())
}

fn word(trend: Trend) -> &'static str {
    match trend {
        Trend::Higher => "higher in every round",
        Trend::Lower => "lower in every round",
        Trend::NoDifference => "",
    }
}

impl Column {
    fn middle(&self) -> String {
        let mut sorted = self.rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        self.unit.shown(median(&sorted).unwrap_or(f64::NAN))
    }
}
