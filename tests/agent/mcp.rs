//! Tools of a real MCP server in the turns of the real program, and what the doctor says of servers.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on stops, and says so"
)]

#[path = "../../crates/agent/tests/support/server.rs"]
mod real;
use std::time::{Duration, Instant};

use crate::support::{Bench, said, stdout};
use petasos_fakes::model::{Answer, Request};
use serde_json::Value;

/// The interpreter takes its time on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(60);

/// `<tool> {…}` calls that tool, and its result comes back.
fn obey(request: &Request) -> Answer {
    if let Some(row) = request.messages().last().filter(|row| row["role"] == "tool") {
        return Answer::text(format!("got {}", row["content"].as_str().unwrap_or_default()));
    }
    let said = said(&request.last_user);
    let asked = said.split_once(' ').and_then(|(tool, json)| Some((tool, serde_json::from_str(json).ok()?)));
    asked.map_or_else(|| Answer::text(format!("heard: {said}")), |(tool, json)| Answer::tool(tool, json))
}

/// Two servers: one that is there, one that is not. `None`: the package is not here, and that was said.
fn bench() -> Option<Bench> {
    let python = real::python()?;
    let folder = tempfile::tempdir().expect("a folder").keep();
    let config = format!(
        "mcp_servers:\n  sums:\n    command: {}\n    args: [{}]\n    env: {{GIVEN: this}}\n  gone:\n    command: {}\n",
        python.display(),
        real::program(&folder),
        folder.join("nothing-here").display()
    );
    let bench = Bench::with(&config);
    bench.model.respond(obey);
    Some(bench)
}

#[track_caller]
fn await_server(bench: &Bench, name: &str, want: &str) -> Value {
    let until = Instant::now() + SOON;
    loop {
        let status = bench.status();
        let servers = status["mcp"].as_array().cloned().unwrap_or_default();
        if let Some(server) = servers.iter().find(|it| it["name"] == name && it["state"] == want) {
            return server.clone();
        }
        assert!(Instant::now() < until, "{name} is never {want}: {servers:?}");
    }
}

/// Says this, and waits for the answer to it.
#[track_caller]
fn ask(bench: &Bench, text: &str) -> String {
    let before = bench.telegram.texts(7).len();
    bench.telegram.push_text(7, 7, text);
    let answer = bench.telegram.wait_until(SOON, |world| world.texts(7).get(before).cloned());
    answer.unwrap_or_else(|| panic!("{text:?} was never answered"))
}

#[test]
fn a_tool_of_a_server_is_called_in_a_turn_and_what_fails_there_fails_alone() {
    let Some(mut bench) = bench() else { return };
    bench.start();
    assert_eq!(await_server(&bench, "sums", "up")["tools"], 5);
    let answer = ask(&bench, r#"mcp__sums__add {"a": 2, "b": 40}"#);
    assert!(answer.contains("42"), "{answer}");
    let offered = bench.model.look(|desk| desk.requests().next().map(|it| it.tools().join(" ")));
    let offered = offered.expect("a request");
    assert!(offered.contains("mcp__sums__add") && !offered.contains("mcp__gone"), "{offered}");
    let given = ask(&bench, r#"mcp__sums__environment {"name": "GIVEN"}"#);
    assert!(given.contains("this"), "{given}");
    // What the gateway knows is not the server's to know.
    let secret = ask(&bench, r#"mcp__sums__environment {"name": "GATEWAY_ALLOW_ALL_USERS"}"#);
    assert!(secret.contains("not there"), "{secret}");
    let refused = ask(&bench, "mcp__sums__refuse {}");
    assert!(refused.contains("not today"), "{refused}");
    // A server that dies in the middle of a call takes nothing with it, and comes back.
    let left = ask(&bench, "mcp__sums__leave {}");
    assert!(left.contains("error"), "{left}");
    await_server(&bench, "sums", "up");
    let again = ask(&bench, r#"mcp__sums__add {"a": 20, "b": 3}"#);
    assert!(again.contains("23"), "{again}");
    bench.settle();
}

#[test]
fn a_kill_during_a_call_leaves_its_effect_unknown_and_it_is_not_made_again() {
    let Some(mut bench) = bench() else { return };
    bench.start();
    await_server(&bench, "sums", "up");
    bench.telegram.push_text(7, 7, "mcp__sums__sleep {}");
    let until = Instant::now() + SOON;
    let begun = |bench: &Bench| {
        let store = rusqlite::Connection::open(bench.database()).expect("a store");
        let count =
            store.query_row("SELECT count(*) FROM messages WHERE role = 'assistant'", [], |row| row.get(0));
        count.unwrap_or(0i64) > 0
    };
    while !begun(&bench) {
        assert!(Instant::now() < until, "never called");
    }
    bench.kill();
    bench.start();
    let answer = bench.telegram.wait_until(SOON, |world| world.texts(7).first().cloned());
    let answer = answer.expect("an answer");
    assert!(answer.contains("\"effect_disposition\":\"unknown\""), "{answer}");
    bench.settle();
    assert_eq!(bench.telegram.texts(7).len(), 1);
}

fn doctor(bench: &Bench, more: &[&str]) -> String {
    let mut doctor = bench.command(&["doctor"]);
    stdout(&doctor.args(more).output().expect("the doctor comes"))
}

#[test]
fn the_doctor_names_every_server_and_how_it_is() {
    let Some(mut bench) = bench() else { return };
    let idle = doctor(&bench, &[]);
    assert!(idle.contains("sums: set up (--online tries it)") && idle.contains("gone: set up"), "{idle}");
    let tried = doctor(&bench, &["--online"]);
    assert!(tried.contains("sums: up, 5 tools") && tried.contains("warn mcp          gone: "), "{tried}");
    bench.start();
    await_server(&bench, "sums", "up");
    let running = doctor(&bench, &[]);
    assert!(running.contains("sums: up, 5 tools"), "{running}");
    assert!(
        running.contains("warn mcp          gone: ") && running.contains("check mcp_servers.gone"),
        "{running}"
    );
}
