//! Commands without and with a running gateway.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use crate::support::{
    GatewayProcess, ProgramFixture, SOON, eventually, expect_failure, expect_json, expect_success, petasos,
    stderr, stdout,
};
use petasos_core::rate_limit::{Penalty, PenaltyScope};
use petasos_fakes::model::{Answer, Point};
use serde_json::Value;
use tempfile::TempDir;

/// The last line of the greeting.
const GREETED: &str = "petasos chat";

/// A home without fakes.
struct PlainHome(TempDir);

impl PlainHome {
    fn new() -> Self {
        Self(TempDir::new().expect("a home"))
    }

    fn with(config: &str) -> Self {
        let home = Self::new();
        std::fs::write(home.0.path().join("config.yaml"), config).expect("config");
        home
    }

    /// Uses any free port: tests run in parallel.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = petasos(self.0.path(), args);
        command.env("API_SERVER_PORT", "0");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("petasos runs")
    }

    /// Starts a gateway and waits for its greeting.
    fn start_gateway(&self) -> GatewayProcess {
        let mut command = self.command(&["run"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        crate::support::read_until(&mut child, GREETED);
        GatewayProcess::new(child)
    }
}

#[test]
fn handles_signals_after_output_pipes_close() {
    // SIGTERM without a marker is unplanned, SIGINT is a request of the user.
    for (signal, code) in [("TERM", 1), ("INT", 0)] {
        let home = PlainHome::with("model: {provider: demo}\nweb: {enabled: false}\n");
        let mut child = home
            .command(&["run"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        crate::support::read_until(&mut child, GREETED);
        drop((child.stdout.take(), child.stderr.take()));
        let gateway = GatewayProcess::new(child);
        gateway.signal(signal);
        assert_eq!(gateway.wait().0, Some(code), "SIG{signal}");
    }
}

#[test]
fn first_start_creates_home_without_warnings() {
    let folder = TempDir::new().expect("a folder");
    let mut command = petasos(&folder.path().join("not/yet"), &["run"]);
    command.env("API_SERVER_PORT", "0").env("HERMES_GATEWAY_MAX_STARTS", "5");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    crate::support::read_until(&mut child, GREETED);
    let gateway = GatewayProcess::new(child);
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("WARN"), "{said}");
}

#[test]
fn login_link_is_not_written_to_logs() {
    let home = PlainHome::with("model: {provider: demo}\n");
    let mut command = home.command(&["run"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let greeting = crate::support::read_until(&mut child, GREETED);
    let gateway = GatewayProcess::new(child);
    gateway.signal("INT");
    let said = format!("{greeting}{}", gateway.wait().1);
    assert!(said.contains("web page  http://127.0.0.1:"), "{said}");
    assert!(said.contains("petasos open prints a sign-in link"), "{said}");
    assert!(!said.contains("token=") && !said.contains("Press Ctrl-C"), "{said}");
    let database = rusqlite::Connection::open(home.0.path().join("petasos.db")).expect("a database");
    let links: i64 =
        database.query_row("SELECT count(*) FROM login_links", [], |row| row.get(0)).expect("a count");
    assert_eq!(links, 0, "a login link was created");
}

#[test]
fn command_tolerates_closed_output_pipe() {
    let home = PlainHome::new();
    let mut child = home
        .command(&["config", "reference"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn outbox_counts_omitted_rate_limits() {
    let home = PlainHome::new();
    let mut store = petasos_store::Store::open(home.0.path().join("petasos.db")).expect("a store");
    let telegram = petasos_core::Platform::parse("telegram").expect("known");
    let wait = std::time::Duration::from_secs(600);
    let now = petasos_gateway::clock::now();
    let limit =
        |chat: i32| Penalty::new(telegram, PenaltyScope::Chat(chat.to_string()), wait, "slow down", now);
    store.write(|tx| (0..23).try_for_each(|chat| tx.put_penalty(&limit(chat)))).expect("stored");
    store.close().expect("closed");
    let listed = |args: &[&str]| {
        let listed = expect_success(&home.run(args));
        (
            listed.matches("is rate limited until").count(),
            listed.contains("And 3 more rate limits; --all lists every one"),
        )
    };
    assert_eq!(listed(&["outbox"]), (20, true));
    assert_eq!(listed(&["outbox", "--all"]), (23, false));
    let limits = expect_json(&home.run(&["outbox", "--json"]))["rate_limits"].as_array().map(Vec::len);
    assert_eq!(limits, Some(23));
}

#[test]
fn read_commands_work_on_empty_home_without_gateway() {
    let home = PlainHome::new();
    assert!(expect_success(&home.run(&["version"])).starts_with("petasos "));
    assert_eq!(expect_json(&home.run(&["version", "--json"]))["version"], env!("CARGO_PKG_VERSION"));
    assert!(expect_success(&home.run(&["status"])).contains("is stopped"));
    assert_eq!(expect_json(&home.run(&["status", "--json"]))["state"], "stopped");
    assert!(expect_success(&home.run(&["sessions"])).contains("No conversations yet"));
    assert_eq!(expect_json(&home.run(&["sessions", "--json"])), serde_json::json!([]));
    assert!(expect_success(&home.run(&["outbox"])).contains("The outbox is empty"));
    assert_eq!(expect_success(&home.run(&["outbox", "--state", "done"])).trim(), "No message is done");
    let none = serde_json::json!({ "items": [], "dead_chats": [], "rate_limits": [] });
    assert_eq!(expect_json(&home.run(&["outbox", "--json"])), none);
    assert!(expect_success(&home.run(&["pairing"])).contains("No pairing requests"));
    assert!(expect_success(&home.run(&["config", "path"])).contains("petasos.db"));
    assert!(expect_success(&home.run(&["config", "check"])).contains("ok:"));
    assert_eq!(expect_json(&home.run(&["config", "check", "--json"]))["ok"], true);
    assert!(expect_success(&home.run(&["completions", "bash"])).contains("_petasos"));
    assert_eq!(expect_json(&home.run(&["doctor", "--json"]))["ok"], true);
}

#[test]
fn commands_needing_a_gateway_say_how_to_start_it() {
    let home = PlainHome::new();
    for command in ["open", "stop"] {
        let said = expect_failure(&home.run(&[command]), 1);
        assert!(said.contains("no gateway is running") && said.contains("next: start one"), "{said}");
        let report: Value =
            serde_json::from_str(&expect_failure(&home.run(&[command, "--json"]), 1)).expect("JSON");
        assert_eq!(report["error"]["next"], "start one: petasos run", "{report}");
        assert!(report["error"]["message"].as_str().is_some_and(|it| it.contains("no gateway")), "{report}");
    }
}

#[test]
fn every_command_refuses_a_file_as_home() {
    let home = PlainHome::new();
    let file = home.0.path().join("file");
    std::fs::write(&file, "x").expect("written");
    for args in [
        &["status"][..],
        &["sessions"],
        &["outbox"],
        &["pairing"],
        &["config", "check"],
        &["doctor"],
        &["run"],
        &["chat", "x"],
    ] {
        let said = expect_failure(&petasos(&file, args).stdin(Stdio::null()).output().expect("runs"), 78);
        assert!(said.contains("is not a directory"), "{args:?}: {said}");
    }
}

#[test]
fn config_check_reports_problems_in_file_order() {
    let home = PlainHome::with(
        "agent:\n  max_turns: many\nmodle: x\nweb:\n  port: 1\n  port: 2\nhuman_delay: {mode: natural}\n",
    );
    let said = stdout(&home.run(&["config", "check"]));
    let starts: Vec<&str> = said.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(starts, ["config.yaml:2", "config.yaml:3", "config.yaml:6", "config.yaml:7"], "{said}");
    assert!(
        said.contains("warning: config.yaml:6: web.port is set twice, on line 5 and on line 6"),
        "{said}"
    );
    assert!(said.contains("has no effect in this version"), "{said}");
    let run = expect_failure(&home.run(&["run"]), 78);
    assert!(run.contains("error: config.yaml:2: agent.max_turns"), "{run}");
}

#[test]
fn reports_unimplemented_restrictions() {
    let home = PlainHome::with(
        "terminal: {enabled: true, backend: docker}\ntoolsets: [file, no-such]\nprofile_routes: [{profile: work}]\n",
    );
    let check = expect_success(&home.run(&["config", "check"]));
    let doctor = expect_success(&home.run(&["doctor"]));
    for said in [&check, &doctor] {
        assert!(said.contains("terminal.backend is not implemented here: the terminal stays off"), "{said}");
        assert!(
            said.contains("toolsets: there is no toolset or tool no-such, so it grants nothing"),
            "{said}"
        );
        assert!(said.contains("profile_routes is not implemented here"), "{said}");
    }
    assert!(doctor.contains("tools outside of toolsets (file, no-such) are off"), "{doctor}");
    let status = expect_success(&home.run(&["status"]));
    assert!(status.contains("terminal.backend") && status.contains("tools outside of toolsets"), "{status}");
    let count = expect_json(&home.run(&["status", "--json"]))["restrictions"].as_array().map(Vec::len);
    assert_eq!(count, Some(3));
    let explained = expect_success(&home.run(&["config", "explain", "terminal.backend"]));
    assert!(explained.contains("not implemented; the terminal stays off"), "{explained}");
}

#[test]
fn config_explain_covers_sections_and_variables() {
    let home = PlainHome::new();
    let section = expect_success(&home.run(&["config", "explain", "web"]));
    assert!(section.contains("web.port") && section.contains("web.host"), "{section}");
    let variable = expect_success(&home.run(&["config", "explain", "API_SERVER_PORT"]));
    assert!(variable.contains("web.port"), "{variable}");
    assert!(
        expect_failure(&home.run(&["config", "explain", "web.prot"]), 78).contains("did you mean web.port?")
    );
}

#[test]
fn chat_reads_question_from_pipe_without_gateway() {
    let home = PlainHome::with("model: {provider: demo, demo_delay_ms: 0}\n");
    let mut child = home
        .command(&["chat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(b"What can you do?\n").expect("written");
    let output = child.wait_with_output().expect("ends");
    let said = expect_success(&output);
    assert!(said.len() > 20 && !said.contains('\u{1b}'), "{said}");
    assert!(stderr(&output).contains("No gateway is running"), "{}", stderr(&output));
    assert_eq!(expect_json(&home.run(&["status", "--json"]))["stored_sessions"], 1);
}

#[test]
fn status_reports_a_database_that_cannot_be_read() {
    let home = PlainHome::with("model: {provider: demo}\n");
    std::fs::write(home.0.path().join("petasos.db"), "not a database, or not one yet").expect("written");
    let status = expect_json(&home.run(&["status", "--json"]));
    assert_eq!(status["state"], "stopped");
    assert_eq!(status["stored_sessions"], serde_json::Value::Null);
    assert!(status["database_error"].is_string(), "{status}");
    let text = expect_success(&home.run(&["status"]));
    assert!(text.contains("cannot be read") && text.contains("next: petasos config path"), "{text}");
}

#[test]
fn commands_report_on_a_running_gateway() {
    let home = PlainHome::with("model: {provider: demo, demo_delay_ms: 0}\n");
    let gateway = home.start_gateway();
    assert!(expect_success(&home.run(&["status"])).contains("is running"));
    let status = expect_json(&home.run(&["status", "--json"]));
    assert_eq!((&status["state"], &status["pid"]), (&"running".into(), &gateway.pid().into()));
    let link = expect_success(&home.run(&["open"]));
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/?token="), "{link}");
    assert!(expect_json(&home.run(&["open", "--json"]))["url"].is_string());
    let answer = expect_json(&home.run(&["chat", "--json", "hello"]));
    assert!(answer["answer"].as_str().is_some_and(|it| !it.is_empty()), "{answer}");
    let sessions = expect_json(&home.run(&["sessions", "--json"]));
    let id = sessions[0]["id"].as_str().expect("an id").to_owned();
    let shown = expect_success(&home.run(&["sessions", "show", &id[..id.len() - 2]]));
    assert!(shown.contains("hello"), "{shown}");
    assert!(expect_failure(&home.run(&["sessions", "show", "nothing"]), 1).contains("there is no session"));
    assert!(expect_success(&home.run(&["status"])).contains("1 stored"));
    assert!(expect_success(&home.run(&["doctor"])).contains("running, pid"));
    let stopped = expect_json(&home.run(&["stop", "--json"]));
    assert_eq!(stopped["stopped"], true);
    assert_eq!(gateway.wait().0, Some(0));
}

#[test]
fn chat_uses_running_gateway_and_exits_nonzero_on_failure() {
    let mut fixture = ProgramFixture::with_config("agent: {api_max_retries: 0}\n");
    fixture.model.respond(|request| {
        if request.last_user.contains("fail") { Answer::status(400, "no") } else { Answer::text("**Four.**") }
    });
    fixture.start();
    assert_eq!(expect_success(&fixture.run(&["chat", "What is", "2+2?"])), "**Four.**\n");
    let said = expect_failure(&fixture.run(&["chat", "please fail"]), 1);
    assert!(said.starts_with("error: "), "{said}");
}

#[test]
fn chat_refused_by_drain_names_resume_command() {
    let home = PlainHome::with("model: {provider: demo, demo_delay_ms: 0}\n");
    expect_success(&home.run(&["drain"]));
    let said = expect_failure(&home.run(&["chat", "hello"]), 1);
    assert!(
        said.contains("draining for maintenance") && said.contains("petasos resume ends the drain"),
        "{said}"
    );
    expect_success(&home.run(&["resume"]));
    expect_success(&home.run(&["chat", "hello"]));
}

#[test]
fn stranger_is_paired_answered_and_revoked() {
    let mut fixture = ProgramFixture::new();
    launch_with_pairing(&mut fixture);
    fixture.telegram.push_text(7, 7, "let me in");
    let code = pairing_code(&fixture.wait_messages(7, 1)[0]);
    assert!(expect_success(&fixture.run(&["pairing"])).contains("pending"));
    let said = expect_failure(&fixture.run(&["pairing", "approve", "telegram", "short"]), 1);
    assert!(said.contains("8 letters and digits") && said.contains("petasos pairing"), "{said}");
    assert!(
        expect_success(&fixture.run(&["pairing", "approve", "telegram", &code]))
            .contains("can talk to the agent now")
    );
    fixture.telegram.push_text(7, 7, "hello");
    assert!(fixture.wait_messages(7, 2).iter().any(|text| text == "echo: hello"));
    let listed = expect_json(&fixture.run(&["pairing", "--json"]));
    assert_eq!(listed[0]["approved"][0]["user_id"], "7");
    assert!(
        expect_success(&fixture.run(&["pairing", "revoke", "telegram", "7"])).contains("can no longer talk")
    );
    fixture.telegram.push_text(7, 7, "still there?");
    let seen = fixture.telegram.wait_until(SOON, |state| (state.pending_updates() == 0).then_some(()));
    assert!(seen.is_some());
    fixture.wait_idle();
    assert!(!fixture.telegram.texts(7).iter().any(|text| text.contains("still there")));
}

#[test]
fn five_wrong_codes_lock_pairing_until_unlock() {
    let mut fixture = ProgramFixture::new();
    let home = fixture.home.path().to_owned();
    let approve =
        |code: &str| petasos(&home, &["pairing", "approve", "telegram", code]).output().expect("runs");
    for more in
        ["4 more wrong codes lock", "3 more wrong codes", "2 more wrong codes", "1 more wrong code locks"]
    {
        let said = expect_failure(&approve("ABCD2345"), 1);
        assert!(said.contains(more), "{said}");
    }
    assert!(expect_failure(&approve("ABCD2345"), 1).contains("locked for an hour"));
    let said = expect_failure(&approve("ABCD2345"), 1);
    assert!(said.contains("pairing is locked until ") && said.contains("min)"), "{said}");
    assert!(expect_success(&fixture.run(&["pairing"])).contains("is locked until"));
    assert!(expect_json(&fixture.run(&["pairing", "--json"]))[0]["locked_until"].is_u64());
    assert!(stdout(&fixture.run(&["doctor"])).contains("locked on telegram"));
    assert!(expect_success(&fixture.run(&["pairing", "unlock", "telegram"])).contains("is unlocked"));
    assert!(expect_failure(&approve("ABCD2345"), 1).contains("4 more wrong codes"));
    fixture.start();
    assert!(
        expect_success(&fixture.run(&["pairing", "unlock", "telegram"])).contains("was not locked"),
        "a running gateway, too"
    );
    assert!(expect_failure(&approve("ABCD2345"), 1).contains("4 more wrong codes"));
}

#[test]
fn missing_database_error_names_both_files() {
    let home = PlainHome::with("model: {provider: demo, demo_delay_ms: 0}\n");
    expect_success(&home.run(&["chat", "hello"]));
    let database = home.0.path().join("petasos.db");
    std::fs::remove_file(&database).expect("removed");
    let status = expect_success(&home.run(&["status"]));
    assert!(status.contains("petasos.db") && status.contains(".petasos-db"), "{status}");
    for args in [&["run"][..], &["sessions"], &["outbox"], &["pairing"]] {
        let said = expect_failure(&home.run(args), 1);
        let next = said.split("next: ").nth(1).unwrap_or_default();
        assert!(next.contains("petasos.db") && next.contains(".petasos-db"), "{args:?}: {said}");
    }
    assert!(stdout(&home.run(&["doctor"])).contains("fail database"));
}

#[test]
fn chat_survives_gateway_restart() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(Point::Before);
    fixture.model.respond(|_| Answer::text("here it is"));
    fixture.start();
    let mut chat = fixture
        .command(&["chat", "are you there?"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    assert!(gate.wait(SOON), "the model was not called");
    fixture.kill();
    let mut stderr = BufReader::new(chat.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains("The connection to the gateway is lost; waiting up to 60 s"), "{line}");
    drop(gate);
    fixture.start();
    assert_eq!(expect_success(&chat.wait_with_output().expect("ends")), "here it is\n");
}

/// Starts a gateway that admits only paired users.
fn launch_with_pairing(fixture: &mut ProgramFixture) {
    let child = fixture
        .command(&["run"])
        .env("GATEWAY_ALLOW_ALL_USERS", "false")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    fixture.gateway = Some(GatewayProcess::new(child.expect("petasos starts")));
    let polling = fixture.telegram.wait_until(SOON, |state| state.calls_of("getUpdates").next().map(|_| ()));
    assert!(polling.is_some(), "the gateway does not poll");
}

/// The pairing code in a text: eight capital letters and digits.
#[track_caller]
fn pairing_code(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let code = words
        .filter(|word| word.len() == 8)
        .find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()));
    code.map(str::to_owned).unwrap_or_else(|| panic!("no code in {text:?}"))
}

#[test]
fn imports_sessions_json_once_and_keeps_it_as_a_copy() {
    let mut fixture = ProgramFixture::new();
    let file = fixture.home.path().join("sessions/sessions.json");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    let legacy = r#"{"_README": "old", "bad": true, "agent:main:telegram:dm:7": {"session_key": "agent:main:telegram:dm:7",
        "session_id": "20261115_181205_13f6a7af", "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05",
        "platform": "telegram", "origin": {"platform": "telegram", "chat_id": "7", "chat_type": "dm"}}}"#;
    std::fs::write(&file, legacy).expect("written");
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    let shown = expect_success(&fixture.run(&["sessions", "show", "20261115_181205"]));
    assert!(shown.contains("hello"), "the imported session does not continue: {shown}");
    let copy = eventually("the copy is written", || {
        let copy = std::fs::read_to_string(&file).expect("the file always exists");
        copy.contains("petasos.db").then_some(copy)
    });
    assert!(copy.contains("20261115_181205_13f6a7af"), "{copy}");
}
