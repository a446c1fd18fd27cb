//! The fault matrix: every fault on every kind of link, for every form of answer, against the real gateway.
//!
//! A cell asks one question, lets one thing go wrong, and looks at the chat: the answer is there, complete and once,
//! or a copy that could not be avoided is marked, or it was given up and is listed. A cell whose fault struck nothing
//! fails. `PETASOS_MATRIX=text` runs the rows whose name contains this.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "matrix/cell.rs"]
mod cell;
#[path = "matrix/discord.rs"]
mod discord;
#[path = "matrix/gateway.rs"]
mod gateway;
#[path = "matrix/relay.rs"]
mod relay;
#[path = "matrix/rows.rs"]
mod rows;
#[path = "matrix/slack.rs"]
mod slack;
#[path = "matrix/stage.rs"]
mod stage;
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
use std::time::Instant;

use petasos_platforms::Adapter;
use rows::{Form, ROWS, Row, Seen};
use stage::Stage;

struct Column {
    name: &'static str,
    adapter: &'static str,
    start: fn() -> Box<dyn Stage>,
}

/// The columns, and from the same list the match that keeps it whole: there is no `_` in it, so an adapter without a
/// column stops the build here.
macro_rules! columns {
    ($($adapter:ident { $($name:literal => $start:path),+ $(,)? })+) => {
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

columns! {
    Telegram { "Telegram" => telegram::polled, "Tg hook" => telegram::called }
    Discord { "Discord" => discord::start }
    Slack { "Slack" => slack::start }
    Relay { "Relay" => relay::start }
    Webhook { "Webhook" => webhook::start }
}

/// Cells that run at the same time; they mostly wait.
const HANDS: usize = 24;

type Cell = (usize, usize, usize);
type Outcome = Result<Option<Seen>, String>;

#[test]
fn whatever_goes_wrong_the_answer_is_there_once_or_says_that_it_may_be_a_copy() {
    let only = std::env::var("PETASOS_MATRIX").unwrap_or_default();
    let chosen: Vec<usize> = (0..ROWS.len()).filter(|row| ROWS[*row].name.contains(&only)).collect();
    let columns = 0..COLUMNS.len();
    let cells: Vec<Cell> = chosen
        .iter()
        .flat_map(|row| columns.clone().map(move |column| (*row, column)))
        .flat_map(|(row, column)| (0..Form::ALL.len()).map(move |form| (row, column, form)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let started = Instant::now();
    thread::scope(|scope| {
        for _hand in 0..HANDS.min(cells.len()) {
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
        assert!(ran, "{} strikes nobody", ROWS[row].name);
    }
}

#[test]
fn there_are_enough_faults_and_each_has_a_name_of_its_own() {
    let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == ROWS.len() && names.len() >= 20, "{}", names.len());
}

fn run((row, column, form): Cell) -> Outcome {
    let (Row { trouble, .. }, column, form) = (&ROWS[row], &COLUMNS[column], Form::ALL[form]);
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

/// Prints the matrix, past the harness that would keep it to itself; what failed is returned.
fn report(chosen: &[usize], done: &BTreeMap<Cell, Outcome>, started: Instant) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut matrix = format!("\n{:52}", "plain, streamed, split");
    COLUMNS.iter().for_each(|column| matrix.push_str(&format!("{:10}", column.name)));
    for row in chosen {
        matrix.push_str(&format!("\n{:52}", ROWS[*row].name));
        for (column, Column { name, .. }) in COLUMNS.iter().enumerate() {
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
