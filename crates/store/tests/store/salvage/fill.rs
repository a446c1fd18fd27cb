//! A database with rows on several pages of every table, half of them only in the log.

use petasos_core::session::Entry;
use petasos_core::{Millis, Source};
use rusqlite::Connection;
use serde::Serialize;

use crate::fixture::{Home, inbound, key, source, turn};

/// Rows per table.
pub(super) const ROWS: i64 = 150;

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

pub(super) fn filled() -> Home {
    let home = Home::new();
    let db = home.raw();
    let turn = turn("7", &[petasos_core::InboxId(1)]);
    let values = [
        ("message", json(&inbound("7", "a"))),
        ("turn", json(&turn)),
        ("route", json(&turn.route)),
        ("source", json::<Source>(&source("7"))),
        ("entry", entry()),
        ("book", json(&petasos_core::pairing::PairingState::default())),
    ];
    fill_tables(&db, TABLES, &values);
    // Large rows with overflow pages.
    db.execute(
        "UPDATE messages SET content = content || replace(hex(zeroblob(9000)), '0', 'x') WHERE id % 40 = 0",
        [],
    )
    .unwrap();
    drop(db);
    home
}

/// Table, columns, and one row; `i` counts.
pub(super) type TableRows = (&'static str, &'static str, &'static str);

/// Fills each table with [`ROWS`] rows, the second half of them only in the log. `values` replace `$name` in a row.
pub(super) fn fill_tables(db: &Connection, tables: &[TableRows], values: &[(&str, String)]) {
    let long = "a needle in some hay; ".repeat(6);
    let half = ROWS / 2;
    for (from, to) in [(1, half), (half + 1, ROWS)] {
        for (table, columns, row) in tables {
            let mut row = row.replace("$long", &long);
            for (name, value) in values {
                row = row.replace(&format!("${name}"), &value.replace('\'', "''"));
            }
            let text = format!(
                "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})
                 INSERT INTO {table} ({columns}) SELECT {row} FROM n"
            );
            db.execute(&text, []).unwrap_or_else(|error| panic!("{table}: {error}"));
        }
        if to == half {
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        }
    }
}

pub(super) fn fills(table: &str) -> bool {
    TABLES.iter().any(|(name, ..)| *name == table)
}

fn entry() -> String {
    json(&Entry::new(
        key("7"),
        petasos_core::SessionId("s".into()),
        None,
        petasos_store::local_time(Millis(1)),
    ))
}

const TABLES: &[TableRows] = &[
    (
        "inbox",
        "id, session_key, message, state, outcome, received_at, settled_at",
        "i, 'k', '$message', 'settled', 'answered', i, i",
    ),
    ("signatures", "key, inbox, at", "'untimed:$long' || i, i, i"),
    ("seen", "platform, dedup, inbox, at", "'telegram', 'dedup-number-' || i, i, i"),
    ("cursors", "link, value", "'telegram/' || i, 'a longer value of a cursor ' || i"),
    ("unreadable", "id, link, event, why, size, raw, at", "i, 'l', 'e' || i, 'why', 3, '$long', i"),
    (
        "turns",
        "id, session_key, session, state, started_at, ended_at, outcome",
        "i, 'k', 's', '$turn', i, i, 'answered'",
    ),
    (
        "outbox",
        "id, lane, route, kind, text, buttons, state, created_at, ended_at",
        "i, 'l', '$route', 'notice', '$long', '[]', 'done', i, i",
    ),
    ("topics", "platform, chat, name, thread, made_at", "'telegram', 'c' || i, '$long', 't', i"),
    ("dead_chats", "platform, chat, reason, marked_at", "'telegram', 'c' || i, '$long', i"),
    ("routing", "session_key, session, entry, updated_at", "'key' || i, 's', '$entry', i"),
    ("sessions", "id, session_key, origin, started_at, last_at", "'s' || i, 'k', '$source', i, i"),
    ("failures", "session_key, count", "'a session key of some length ' || i, i"),
    ("messages", "id, session, role, content, at", "i, 's' || (i % 9), 'user', '$long', i"),
    ("pairing", "platform, book", "'p' || i, '$book'"),
    (
        "completions",
        "id, dispatch, session_key, origin, kind, payload, state, created_at",
        "i, 'd' || i, 'k', '$source', 'process', '$long', 'consumed', i",
    ),
    (
        "processes",
        "id, session_key, session, origin, command, cwd, promise, started_at",
        "'p' || i, 'k', 's', '$source', '$long', '/', 'p', i",
    ),
    ("todos", "session, items, at", "'s' || i, '$long', i"),
    (
        "delegations",
        "id, session_key, session, origin, tasks, started_at",
        "'d' || i, 'k', 's', '$source', '$long', i",
    ),
    (
        "questions",
        "number, id, session_key, session, turn, call, origin, kind, body, asked_at, expires_at",
        "i, 'q' || i, 'k', 's', i, 'c', '$source', 'clarify', '$long', i, i",
    ),
    ("approved", "scope, category, at", "'s' || i, '$long', i"),
    (
        "runs",
        "id, inbox, owner, session, session_key, wish, created_at",
        "'r' || i, i, 'o', 's', 'k', '$long', i",
    ),
    ("repeats", "owner, name, fingerprint, run, at", "'o', 'name' || i, zeroblob(32), 'r' || i, i"),
    (
        "logins",
        "token_hash, label, created_at, used_at, expires_at",
        "CAST('hash' || i AS BLOB), '$long', i, i, i",
    ),
    (
        "login_links",
        "token_hash, expires_at",
        "CAST('a hash of some length, say thirty-two ' || i AS BLOB), i",
    ),
    ("meta", "key, value", "'test' || i, '$long'"),
];
