//! A message whose turn the store rejects, with or without the notice about it.

use petasos_gateway::Side;
use petasos_store::Store;
use rusqlite::Connection;

use crate::Scenario;
use crate::conversation::{self, AnswerForm, CHAT, QUESTION};
use crate::fixture::{SweepFixture, SweepResult, wait};

/// Tables that can reject new rows.
pub const TURN: &str = "turns";
pub const NOTICE: &str = "outbox";
const GIVEN_UP: &str = "I could not handle this message";

pub fn set_up(rejected_tables: &[&str]) -> SweepFixture {
    let fixture = SweepFixture::new(conversation::program(AnswerForm::Plain));
    Store::open(fixture.program.database()).expect("a store").close().expect("closed");
    for table in rejected_tables {
        let refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END";
        execute_sql(&fixture, &format!("CREATE TRIGGER refused_{table} BEFORE INSERT ON {table} {refuse}"));
    }
    fixture
}

fn execute_sql(fixture: &SweepFixture, sql: &str) {
    let store = Connection::open(fixture.program.database()).expect("a store");
    store.execute_batch(sql).expect("changed");
}

/// Before the commit the message is answered by the next process. After it, the message is listed, its author is notified
/// if that can be stored, and no turn runs.
pub fn check(fixture: &mut SweepFixture, scenario: Scenario, side: Side) -> SweepResult {
    execute_sql(fixture, "DROP TRIGGER IF EXISTS refused_turns; DROP TRIGGER IF EXISTS refused_outbox;");
    fixture.launch();
    if side == Side::Before {
        fixture.wait_text(CHAT, &format!("echo: {QUESTION}"))?;
        fixture.program.wait_idle();
        return fixture.check_model_calls(1);
    }
    wait("listed", || fixture.program.status()["unreadable"] == 1)?;
    fixture.program.wait_idle();
    if scenario == Scenario::RejectedTurn {
        fixture.wait_text(CHAT, GIVEN_UP)?;
    }
    fixture.check_no_unmarked_copy(CHAT, GIVEN_UP)?;
    fixture.check_model_calls(0)
}
