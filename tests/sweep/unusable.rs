//! A message that cannot be handled: the store refuses its turn, and the notice about it.

use petasos_gateway::Side;
use petasos_store::Store;
use rusqlite::Connection;

use crate::life::{Life, Outcome, wait};
use crate::talk::{self, CHAT, Form, QUESTION};

/// Stands in for rows that cannot be used.
const REFUSALS: &str = "
    CREATE TRIGGER refused_turn BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'refused'); END;
    CREATE TRIGGER refused_notice BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'refused'); END;";

pub fn set_up() -> Life {
    let life = Life::new(talk::bench(Form::Plain));
    Store::open(life.bench.database()).expect("a store").close().expect("closed");
    change(&life, REFUSALS);
    life
}

fn change(life: &Life, sql: &str) {
    let store = Connection::open(life.bench.database()).expect("a store");
    store.execute_batch(sql).expect("changed");
}

/// Not given up yet: it is answered as soon as it can be. Given up: it is settled for good, and not handled again.
pub fn check(life: &mut Life, side: Side) -> Outcome {
    change(life, "DROP TRIGGER refused_turn; DROP TRIGGER refused_notice;");
    life.launch();
    match side {
        Side::Before => {
            life.sees(CHAT, &format!("echo: {QUESTION}"))?;
            life.bench.settle();
            life.asked_at_most(1)
        }
        Side::After => {
            life.bench.await_state("running");
            life.bench.settle();
            let outcome = "SELECT count(*) FROM inbox WHERE outcome = 'dead'";
            wait("given up", || {
                let store = Connection::open(life.bench.database()).expect("a store");
                store.query_row(outcome, [], |row| row.get::<_, i64>(0)).expect("a count") == 1
            })?;
            life.asked_at_most(0)
        }
    }
}
