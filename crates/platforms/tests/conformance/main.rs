//! The conformance kit: one table of deliveries and faults (`table.rs`) that every adapter must pass against
//! its fake server.
//!
//! A new adapter: implement `Peer` over its fake in a file of its own, and name it in `kit!` below. Without
//! that this test does not build. An adapter with two links has two columns. What an adapter cannot do, or does not do
//! yet, is said in the table, or by its peer (`excuses`), with its reason; a cell that turns out otherwise, for better
//! or worse, fails the run.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod discord;
mod files;
mod link;
mod peer;
mod receiving;
mod relay;
mod sending;
mod shape;
mod slack;
mod table;
mod telegram;
mod webhook;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use peer::{Peer, Temper};
use petasos_platforms::Adapter;
use table::{CASES, Case, Except};

/// No cell takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who is tested, and how its fake is started.
struct Column {
    name: &'static str,
    adapter: &'static str,
    start: fn(Temper) -> Box<dyn Peer>,
}

/// The columns, and from the same list the match that keeps it whole: there is no `_` in it, so an adapter
/// that is not in the kit stops the build here.
macro_rules! kit {
    ($($adapter:ident => [$($name:literal: $start:path),+]),+ $(,)?) => {
        const COLUMNS: &[Column] =
            &[$($(Column { name: $name, adapter: stringify!($adapter), start: $start }),+),+];

        fn name_of(adapter: &Adapter) -> &'static str {
            match adapter {
                $(Adapter::$adapter(_) => stringify!($adapter),)+
                // No platform: a simulation brings its own.
                #[cfg(feature = "simulation")]
                Adapter::Given(_) => "Given",
            }
        }
    };
}

kit! {
    Telegram => ["Telegram": telegram::start, "Called": telegram::called],
    Discord => ["Discord": discord::start],
    Slack => ["Slack": slack::start],
    Webhook => ["Webhook": webhook::start],
    Relay => ["Relay": relay::start],
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// The adapter says that it cannot do this.
    NotApplicable,
    /// Its peer says why it makes no sense there.
    Excused(&'static str),
    Failed(String),
}

#[test]
fn every_adapter_passes_every_case() {
    let results: Vec<Vec<Verdict>> = thread::scope(|scope| {
        let columns: Vec<_> = COLUMNS.iter().map(|column| scope.spawn(|| run(column))).collect();
        columns.into_iter().map(|column| column.join().expect("cells catch their panics")).collect()
    });
    let wrong = report(&results);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_table_speaks_of_adapters_that_are_there_and_gives_its_reasons() {
    let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CASES.len(), "each case has a name of its own");
    for (case, (adapter, except)) in
        CASES.iter().flat_map(|case| case.except.iter().map(move |it| (case, it)))
    {
        assert!(COLUMNS.iter().any(|column| column.name == *adapter), "{}: {adapter}", case.name);
        assert!(except.reason().contains(' '), "{}: a reason is a sentence", case.name);
    }
    for column in COLUMNS {
        for (excused, reason) in (column.start)(Temper::Patient).excuses() {
            assert!(names.contains(excused), "{}: {excused:?} is no case (any more)", column.name);
            assert!(reason.contains(' '), "{}, {excused}: a reason is a sentence", column.name);
        }
    }
}

fn run(column: &Column) -> Vec<Verdict> {
    CASES.iter().map(|case| cell(column, case)).collect()
}

fn cell(column: &Column, case: &Case) -> Verdict {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let peer = (column.start)(case.temper);
        assert_eq!(name_of(peer.adapter()), column.adapter, "a peer of another platform");
        if let Some(reason) = peer.excuse(case.name) {
            return Ok(Verdict::Excused(reason));
        }
        runtime.block_on(async { tokio::time::timeout(PATIENCE, (case.check)(&*peer)).await })
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_elapsed)) => Verdict::Failed(format!("not done within {PATIENCE:?}")),
        Err(panic) => Verdict::Failed(words(&*panic)),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// Prints the matrix, past the harness that would keep it to itself; what is not as the table says is returned.
fn report(results: &[Vec<Verdict>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut matrix = format!("\n{:66}", "");
    let mut notes = String::new();
    COLUMNS.iter().for_each(|column| matrix.push_str(&format!("{:10}", column.name)));
    for (at, case) in CASES.iter().enumerate() {
        matrix.push_str(&format!("\n{:66}", case.name));
        for (column, verdicts) in COLUMNS.iter().zip(results) {
            let expected = case.except.iter().find(|(name, _)| *name == column.name).map(|(_, it)| it);
            let (shown, mistake) = judge(&verdicts[at], expected);
            matrix.push_str(&format!("{shown:10}"));
            let excuse = match verdicts[at] {
                Verdict::Excused(reason) => Some(reason),
                Verdict::Passed | Verdict::NotApplicable | Verdict::Failed(_) => None,
            };
            if let Some(reason) = expected.map(Except::reason).or(excuse) {
                notes.push_str(&format!("\n  {} · {}: {shown}: {reason}", column.name, case.name));
            }
            wrong.extend(mistake.map(|mistake| format!("{} · {}: {mistake}", column.name, case.name)));
        }
    }
    let _nobody_reads = writeln!(std::io::stderr(), "{matrix}\n{notes}");
    wrong
}

/// The word for the matrix, and what is wrong with the cell.
fn judge(verdict: &Verdict, expected: Option<&Except>) -> (&'static str, Option<String>) {
    match (verdict, expected) {
        (Verdict::Passed, None) => ("ok", None),
        (Verdict::NotApplicable, Some(Except::NotApplicable(_))) | (Verdict::Excused(_), None) => {
            ("n/a", None)
        }
        (Verdict::Excused(_), Some(_)) => {
            ("N/A!", Some("excused twice: by its peer and by the table".into()))
        }
        (Verdict::Failed(why), Some(Except::Gap { fails_with, .. })) if why.contains(fails_with) => {
            ("gap", None)
        }
        (Verdict::Failed(why), None | Some(Except::NotApplicable(_) | Except::Gap { .. })) => {
            ("FAILED", Some(why.clone()))
        }
        (Verdict::Passed, Some(_)) => {
            ("PASSES", Some("passes now: take its exception out of the table".into()))
        }
        (Verdict::NotApplicable, None | Some(Except::Gap { .. })) => {
            ("N/A?", Some("the adapter says that it cannot; the table does not say why".into()))
        }
    }
}
