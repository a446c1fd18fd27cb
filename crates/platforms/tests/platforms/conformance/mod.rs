//! Conformance kit: cases (`table.rs`) that every adapter must pass against its fake.
//!
//! For a new adapter, implement `TestPlatform` over its fake and add it to `kit!`; without that the test does
//! not build. An adapter with two links has two columns. Exceptions are listed with a reason in the table or
//! by the platform (`skipped_cases`); a cell with another result than expected fails the run.

mod discord;
mod files;
mod link;
mod platform;
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

use petasos_platforms::Adapter;
use platform::{TestPlatform, TimeoutProfile};
use table::{CASES, ConformanceCase, Exception};

const CELL_TIMEOUT: Duration = Duration::from_secs(60);

struct Column {
    name: &'static str,
    adapter: &'static str,
    start: fn(TimeoutProfile) -> Box<dyn TestPlatform>,
}

/// The columns, and a match without `_` over the adapters: an adapter that is missing stops the build.
macro_rules! kit {
    ($($adapter:ident => [$($name:literal: $start:path),+]),+ $(,)?) => {
        const COLUMNS: &[Column] =
            &[$($(Column { name: $name, adapter: stringify!($adapter), start: $start }),+),+];

        fn name_of(adapter: &Adapter) -> &'static str {
            match adapter {
                $(Adapter::$adapter(_) => stringify!($adapter),)+
                // Not a platform: simulations supply their own.
                #[cfg(feature = "simulation")]
                Adapter::Simulated(_) => "Simulated",
            }
        }
    };
}

kit! {
    Telegram => ["Telegram": telegram::start, "TgWebhook": telegram::start_webhook],
    Discord => ["Discord": discord::start],
    Slack => ["Slack": slack::start],
    Webhook => ["Webhook": webhook::start],
    Relay => ["Relay": relay::start],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CellResult {
    Passed,
    /// The adapter does not support it.
    NotApplicable,
    /// The platform gives the reason.
    Skipped(&'static str),
    Failed(String),
}

#[test]
fn every_adapter_passes_every_case() {
    let results: Vec<Vec<CellResult>> = thread::scope(|scope| {
        let columns: Vec<_> = COLUMNS.iter().map(|column| scope.spawn(|| run(column))).collect();
        columns.into_iter().map(|column| column.join().expect("cells catch their panics")).collect()
    });
    let wrong = report(&results);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn exceptions_name_known_adapters_and_reasons() {
    let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CASES.len(), "each case has a name of its own");
    for (case, (adapter, exceptions)) in
        CASES.iter().flat_map(|case| case.exceptions.iter().map(move |it| (case, it)))
    {
        assert!(COLUMNS.iter().any(|column| column.name == *adapter), "{}: {adapter}", case.name);
        assert!(exceptions.reason().contains(' '), "{}: a reason is a sentence", case.name);
    }
    for column in COLUMNS {
        for (excused, reason) in (column.start)(TimeoutProfile::Long).skipped_cases() {
            assert!(names.contains(excused), "{}: {excused:?} is no case (any more)", column.name);
            assert!(reason.contains(' '), "{}, {excused}: a reason is a sentence", column.name);
        }
    }
}

fn run(column: &Column) -> Vec<CellResult> {
    CASES.iter().map(|case| cell(column, case)).collect()
}

fn cell(column: &Column, case: &ConformanceCase) -> CellResult {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let platform = (column.start)(case.timeouts);
        assert_eq!(name_of(platform.adapter()), column.adapter, "the platform has another adapter");
        if let Some(reason) = platform.skip_reason(case.name) {
            return Ok(CellResult::Skipped(reason));
        }
        runtime.block_on(async { tokio::time::timeout(CELL_TIMEOUT, (case.check)(&*platform)).await })
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => result,
        Ok(Err(_elapsed)) => CellResult::Failed(format!("not done within {CELL_TIMEOUT:?}")),
        Err(panic) => CellResult::Failed(panic_message(&*panic)),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// Prints the matrix to stderr, past the test harness. Returns the cells that differ from the table.
fn report(results: &[Vec<CellResult>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut matrix = format!("\n{:66}", "");
    let mut notes = String::new();
    COLUMNS.iter().for_each(|column| matrix.push_str(&format!("{:10}", column.name)));
    for (at, case) in CASES.iter().enumerate() {
        matrix.push_str(&format!("\n{:66}", case.name));
        for (column, row) in COLUMNS.iter().zip(results) {
            let expected = case.exceptions.iter().find(|(name, _)| *name == column.name).map(|(_, it)| it);
            let (shown, problem) = compare(&row[at], expected);
            matrix.push_str(&format!("{shown:10}"));
            let skipped = match row[at] {
                CellResult::Skipped(reason) => Some(reason),
                CellResult::Passed | CellResult::NotApplicable | CellResult::Failed(_) => None,
            };
            if let Some(reason) = expected.map(Exception::reason).or(skipped) {
                notes.push_str(&format!("\n  {} · {}: {shown}: {reason}", column.name, case.name));
            }
            wrong.extend(problem.map(|problem| format!("{} · {}: {problem}", column.name, case.name)));
        }
    }
    let _ignored = writeln!(std::io::stderr(), "{matrix}\n{notes}");
    wrong
}

/// The matrix entry, and the mistake in the cell if there is one.
fn compare(result: &CellResult, expected: Option<&Exception>) -> (&'static str, Option<String>) {
    match (result, expected) {
        (CellResult::Passed, None) => ("ok", None),
        (CellResult::NotApplicable, Some(Exception::NotApplicable(_))) | (CellResult::Skipped(_), None) => {
            ("n/a", None)
        }
        (CellResult::Skipped(_), Some(_)) => {
            ("N/A!", Some("skipped by the platform and by the table".into()))
        }
        (CellResult::Failed(why), Some(Exception::Gap { fails_with, .. })) if why.contains(fails_with) => {
            ("gap", None)
        }
        (CellResult::Failed(why), None | Some(Exception::NotApplicable(_) | Exception::Gap { .. })) => {
            ("FAILED", Some(why.clone()))
        }
        (CellResult::Passed, Some(_)) => {
            ("PASSES", Some("passes now: take its exception out of the table".into()))
        }
        (CellResult::NotApplicable, None | Some(Exception::Gap { .. })) => {
            ("N/A?", Some("the adapter says that it cannot; the table does not say why".into()))
        }
    }
}
