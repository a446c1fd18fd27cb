//! The fault matrix: every fault on every kind of link, for every form of answer, against the real gateway.
//!
//! A cell sends one question, injects one fault, and checks the chat: the answer is complete and appears once, or an
//! unavoidable duplicate is marked, or the answer is listed as a dead letter. A cell whose fault hit nothing fails.
//! `PETASOS_MATRIX=text` runs only the rows whose name contains this.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "matrix/cell.rs"]
mod cell;
#[path = "matrix/discord.rs"]
mod discord;
#[path = "matrix/gateway.rs"]
mod gateway;
#[path = "matrix/platform.rs"]
mod platform;
#[path = "matrix/relay.rs"]
mod relay;
#[path = "matrix/rows.rs"]
mod rows;
#[path = "matrix/slack.rs"]
mod slack;
#[path = "matrix/telegram.rs"]
mod telegram;
#[path = "matrix/webhook.rs"]
mod webhook;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use petasos_platforms::Adapter;
use petasos_runtime::clock;
use platform::MatrixPlatform;
use rows::{FaultRow, Form, ROWS, VisibleResult};
use tokio::time::Instant;

struct MatrixColumn {
    name: &'static str,
    adapter: &'static str,
    start: fn() -> Box<dyn MatrixPlatform>,
}

/// Defines the columns and an exhaustive match over the adapters, so that an adapter without a column does not compile.
macro_rules! columns {
    ($($adapter:ident { $($name:literal => $start:path),+ $(,)? })+) => {
        const COLUMNS: &[MatrixColumn] =
            &[$($(MatrixColumn { name: $name, adapter: stringify!($adapter), start: $start }),+),+];

        fn name_of(adapter: &Adapter) -> &'static str {
            match adapter {
                $(Adapter::$adapter(_) => stringify!($adapter),)+
                #[cfg(feature = "simulation")]
                Adapter::Simulated(_) => "Given",
            }
        }
    };
}

columns! {
    Telegram { "Telegram" => telegram::polled, "Tg hook" => telegram::called }
    Discord { "Discord" => discord::start }
    Slack { "Slack" => slack::start }
    Relay { "Relay" => relay::start }
    Webhook { "Webhook" => webhook::start }
}

/// Cells mostly wait, so many run concurrently.
const CONCURRENT_CELLS: usize = 24;

type CellIndex = (usize, usize, usize);
type CellResult = Result<Option<VisibleResult>, String>;

#[test]
fn every_fault_yields_one_answer_or_marked_duplicate() {
    let only = std::env::var("PETASOS_MATRIX").unwrap_or_default();
    let chosen: Vec<usize> = (0..ROWS.len()).filter(|row| ROWS[*row].name.contains(&only)).collect();
    let columns = 0..COLUMNS.len();
    let cells: Vec<CellIndex> = chosen
        .iter()
        .flat_map(|row| columns.clone().map(move |column| (*row, column)))
        .flat_map(|(row, column)| (0..Form::ALL.len()).map(move |form| (row, column, form)))
        .collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let started = clock::monotonic();
    thread::scope(|scope| {
        for _hand in 0..CONCURRENT_CELLS.min(cells.len()) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(*cell);
                    done.lock().expect("cells catch their panics").insert(*cell, outcome);
                }
            });
        }
    });
    let done = done.into_inner().expect("cells catch their panics");
    let wrong = report(&chosen, &done, started);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for row in chosen {
        let ran = done.iter().any(|((at, ..), outcome)| *at == row && matches!(outcome, Ok(Some(_))));
        assert!(ran, "{} hits no request", ROWS[row].name);
    }
}

#[test]
fn fault_names_are_unique() {
    let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == ROWS.len() && names.len() >= 20, "{}", names.len());
}

fn run((row, column, form): CellIndex) -> CellResult {
    let FaultRow { trouble, .. } = &ROWS[row];
    let column = &COLUMNS[column];
    let form = Form::ALL[form];
    let work = || {
        let stage = (column.start)();
        let adapters = stage.adapters(trouble.patience());
        assert_eq!(name_of(&adapters[0]), column.adapter, "a stage of another platform");
        drop(adapters);
        cell::run(&*stage, *trouble, form)
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// Prints the matrix to the terminal, past the output capture of the test harness. Returns the failed cells.
fn report(chosen: &[usize], done: &BTreeMap<CellIndex, CellResult>, started: Instant) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut matrix = format!("\n{:52}", "plain, streamed, split");
    COLUMNS.iter().for_each(|column| matrix.push_str(&format!("{:10}", column.name)));
    for row in chosen {
        matrix.push_str(&format!("\n{:52}", ROWS[*row].name));
        for (column, MatrixColumn { name, .. }) in COLUMNS.iter().enumerate() {
            let mut letters = String::new();
            for (form, which) in Form::ALL.iter().enumerate() {
                letters.push(match &done[&(*row, column, form)] {
                    Ok(Some(seen)) => seen.letter(),
                    Ok(None) => '-',
                    Err(why) => {
                        wrong.push(format!("{name} · {} · {which:?}: {why}", ROWS[*row].name));
                        '!'
                    }
                });
                letters.push(' ');
            }
            matrix.push_str(&format!("{letters:10}"));
        }
    }
    let ran = done.values().filter(|outcome| !matches!(outcome, Ok(None))).count();
    let took = started.elapsed().as_secs();
    let legend = "1 once · m once, marked · 2 the second copy marked · x given up and listed · - there is no such thing";
    let _nobody_reads =
        writeln!(std::io::stderr(), "{matrix}\n\n{legend}\n{ran} cells in {took} s, {} failed", wrong.len());
    wrong
}
