//! A message that cannot be handled: the store refuses its turn, and perhaps the notice about it.

use petasos_gateway::Side;
use petasos_store::Store;
use rusqlite::Connection;

use crate::Scenario;
use crate::life::{Life, Outcome, wait};
use crate::talk::{self, CHAT, Form, QUESTION};

/// Tables whose new rows are refused, as if what is stored could not be used.
pub const TURN: &str = "turns";
pub const NOTICE: &str = "outbox";
const GIVEN_UP: &str = "I could not handle this message";

pub fn set_up(refused: &[&str]) -> Life {
    let life = Life::new(talk::bench(Form::Plain));
    Store::open(life.bench.database()).expect("a store").close().expect("closed");
    for table in refused {
        let refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END";
        change(&life, &format!("CREATE TRIGGER refused_{table} BEFORE INSERT ON {table} {refuse}"));
    }
    life
}

fn change(life: &Life, sql: &str) {
    let store = Connection::open(life.bench.database()).expect("a store");
    store.execute_batch(sql).expect("changed");
}

/// Not given up yet: it is answered as soon as it can be. Given up: it is not handled again, its author is told if
/// that can be stored, and it is listed.
pub fn check(life: &mut Life, scenario: Scenario, side: Side) -> Outcome {
    change(life, "DROP TRIGGER IF EXISTS refused_turns; DROP TRIGGER IF EXISTS refused_outbox;");
    life.launch();
    if side == Side::Before {
        life.sees(CHAT, &format!("echo: {QUESTION}"))?;
        life.bench.settle();
        return life.asked_at_most(1);
    }
    wait("listed", || life.bench.status()["unreadable"] == 1)?;
    life.bench.settle();
    if scenario == Scenario::Unusable {
        life.sees(CHAT, GIVEN_UP)?;
    }
    life.at_most_one_unmarked(CHAT, GIVEN_UP)?;
    life.asked_at_most(0)
}
