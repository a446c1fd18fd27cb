//! Tools of a real MCP server, and its state in `petasos doctor`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on stops, and says so"
)]

#[path = "../../crates/agent/tests/support/server.rs"]
mod mcp_server;

use crate::support::{ProgramFixture, SOON, eventually, stdout, user_text};
use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::Value;

/// `<tool> {…}` calls that tool and answers with its result; other text is echoed.
fn scripted_answer(request: &ChatRequest) -> Answer {
    if let Some(row) = request.messages().last().filter(|row| row["role"] == "tool") {
        return Answer::text(format!("got {}", row["content"].as_str().unwrap_or_default()));
    }
    let said = user_text(&request.last_user);
    let asked = said.split_once(' ').and_then(|(tool, json)| Some((tool, serde_json::from_str(json).ok()?)));
    asked.map_or_else(|| Answer::text(format!("heard: {said}")), |(tool, json)| Answer::tool(tool, json))
}

/// One working and one missing server. `None`: the Python package is not installed.
fn fixture() -> Option<ProgramFixture> {
    let python = mcp_server::python()?;
    let folder = tempfile::tempdir().expect("a folder").keep();
    let config = format!(
        "mcp_servers:\n  sums:\n    command: {}\n    args: [{}]\n    env: {{GIVEN: this}}\n  gone:\n    command: {}\n",
        python.display(),
        mcp_server::program(&folder),
        folder.join("nothing-here").display()
    );
    let fixture = ProgramFixture::with_config(&config);
    fixture.model.respond(scripted_answer);
    Some(fixture)
}

#[track_caller]
fn wait_server_state(fixture: &ProgramFixture, name: &str, want: &str) -> Value {
    eventually(&format!("{name} is {want}"), || {
        let servers = fixture.status()["mcp"].as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|it| it["name"] == name && it["state"] == want)
    })
}

#[track_caller]
fn exchange(fixture: &ProgramFixture, text: &str) -> String {
    let before = fixture.telegram.texts(7).len();
    fixture.telegram.push_text(7, 7, text);
    let answer = fixture.telegram.wait_until(SOON, |state| state.texts(7).get(before).cloned());
    answer.unwrap_or_else(|| panic!("{text:?} was never answered"))
}

#[test]
fn calls_mcp_tool_and_isolates_its_failures() {
    let Some(mut fixture) = fixture() else { return };
    fixture.start();
    assert_eq!(wait_server_state(&fixture, "sums", "up")["tools"], 5);
    let answer = exchange(&fixture, r#"mcp__sums__add {"a": 2, "b": 40}"#);
    assert!(answer.contains("42"), "{answer}");
    let offered = fixture.model.read(|state| state.requests().next().map(|it| it.tools().join(" ")));
    let offered = offered.expect("a request");
    assert!(offered.contains("mcp__sums__add") && !offered.contains("mcp__gone"), "{offered}");
    let given = exchange(&fixture, r#"mcp__sums__environment {"name": "GIVEN"}"#);
    assert!(given.contains("this"), "{given}");
    // The gateway's environment is not passed on.
    let secret = exchange(&fixture, r#"mcp__sums__environment {"name": "GATEWAY_ALLOW_ALL_USERS"}"#);
    assert!(secret.contains("not there"), "{secret}");
    let refused = exchange(&fixture, "mcp__sums__refuse {}");
    assert!(refused.contains("not today"), "{refused}");
    // A server that dies during a call is restarted.
    let left = exchange(&fixture, "mcp__sums__leave {}");
    assert!(left.contains("error"), "{left}");
    wait_server_state(&fixture, "sums", "up");
    let again = exchange(&fixture, r#"mcp__sums__add {"a": 20, "b": 3}"#);
    assert!(again.contains("23"), "{again}");
    fixture.wait_idle();
}

#[test]
fn kill_during_mcp_call_reports_unknown_effect_and_no_retry() {
    let Some(mut fixture) = fixture() else { return };
    fixture.start();
    wait_server_state(&fixture, "sums", "up");
    fixture.telegram.push_text(7, 7, "mcp__sums__sleep {}");
    let begun = |fixture: &ProgramFixture| {
        let store = rusqlite::Connection::open(fixture.database()).expect("a store");
        let count =
            store.query_row("SELECT count(*) FROM messages WHERE role = 'assistant'", [], |row| row.get(0));
        count.unwrap_or(0i64) > 0
    };
    eventually("the tool is called", || begun(&fixture));
    fixture.kill();
    fixture.start();
    let answer = fixture.telegram.wait_until(SOON, |state| state.texts(7).first().cloned());
    let answer = answer.expect("an answer");
    assert!(answer.contains("\"effect_disposition\":\"unknown\""), "{answer}");
    fixture.wait_idle();
    assert_eq!(fixture.telegram.texts(7).len(), 1);
}

fn doctor(fixture: &ProgramFixture, more: &[&str]) -> String {
    let mut doctor = fixture.command(&["doctor"]);
    stdout(&doctor.args(more).output().expect("petasos runs"))
}

#[test]
fn doctor_lists_mcp_servers_with_state() {
    let Some(mut fixture) = fixture() else { return };
    let idle = doctor(&fixture, &[]);
    assert!(
        idle.contains("sums: configured (--online tests it)") && idle.contains("gone: configured"),
        "{idle}"
    );
    let tried = doctor(&fixture, &["--online"]);
    assert!(tried.contains("sums: up, 5 tools") && tried.contains("warn mcp          gone: "), "{tried}");
    fixture.start();
    wait_server_state(&fixture, "sums", "up");
    let running = doctor(&fixture, &[]);
    assert!(running.contains("sums: up, 5 tools"), "{running}");
    assert!(
        running.contains("warn mcp          gone: ") && running.contains("check mcp_servers.gone"),
        "{running}"
    );
}
