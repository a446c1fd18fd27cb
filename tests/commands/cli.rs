//! The companions as a person or a script uses them, without a gateway and with one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use crate::support::{Bench, Gateway, SOON, failed, fine, json, petasos, stderr, stdout};
use petasos_core::rate_limit::{Penalty, Scope};
use petasos_fakes::model::{Answer, Point};
use serde_json::Value;
use tempfile::TempDir;

/// The last line of a greeting wherever it goes.
const GREETED: &str = "petasos chat";

/// A home with nothing in it.
struct Empty(TempDir);

impl Empty {
    fn new() -> Self {
        Self(TempDir::new().expect("a home"))
    }

    fn with(config: &str) -> Self {
        let home = Self::new();
        std::fs::write(home.0.path().join("config.yaml"), config).expect("config");
        home
    }

    /// Any free port: tests run side by side.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = petasos(self.0.path(), args);
        command.env("API_SERVER_PORT", "0");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("petasos runs")
    }

    /// Starts a gateway and waits for its greeting.
    fn gateway(&self) -> Gateway {
        let mut command = self.command(&["run"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        crate::support::read_until(&mut child, GREETED);
        Gateway::of(child)
    }
}

#[test]
fn a_gateway_whose_readers_are_gone_still_obeys_a_signal() {
    // The one may be an accident, the other is somebody's wish.
    for (signal, code) in [("TERM", 1), ("INT", 0)] {
        let home = Empty::with("model: {provider: demo}\nweb: {enabled: false}\n");
        let mut child = home
            .command(&["run"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        crate::support::read_until(&mut child, GREETED);
        drop((child.stdout.take(), child.stderr.take()));
        let gateway = Gateway::of(child);
        gateway.signal(signal);
        assert_eq!(gateway.wait().0, Some(code), "SIG{signal}");
    }
}

#[test]
fn the_first_start_makes_its_home_and_warns_of_nothing() {
    let place = TempDir::new().expect("a place");
    let mut command = petasos(&place.path().join("not/yet"), &["run"]);
    command.env("API_SERVER_PORT", "0").env("HERMES_GATEWAY_MAX_STARTS", "5");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    crate::support::read_until(&mut child, GREETED);
    let gateway = Gateway::of(child);
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("WARN"), "{said}");
}

#[test]
fn a_link_that_lets_somebody_in_is_not_for_a_log() {
    let home = Empty::with("model: {provider: demo}\n");
    let mut command = home.command(&["run"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let greeting = crate::support::read_until(&mut child, GREETED);
    let gateway = Gateway::of(child);
    gateway.signal("INT");
    let said = format!("{greeting}{}", gateway.wait().1);
    assert!(said.contains("web page  http://127.0.0.1:"), "{said}");
    assert!(said.contains("petasos open prints a link that lets you in"), "{said}");
    assert!(!said.contains("token=") && !said.contains("Ctrl-C stops"), "{said}");
    let database = rusqlite::Connection::open(home.0.path().join("petasos.db")).expect("a database");
    let links: i64 =
        database.query_row("SELECT count(*) FROM login_links", [], |row| row.get(0)).expect("a count");
    assert_eq!(links, 0, "nobody asked for a link");
}

#[test]
fn a_reader_that_leaves_early_does_not_hurt_a_companion() {
    let home = Empty::new();
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
fn outbox_says_how_many_rate_limits_it_leaves_out() {
    let home = Empty::new();
    let mut store = petasos_store::Store::open(home.0.path().join("petasos.db")).expect("a store");
    let telegram = petasos_core::Platform::parse("telegram").expect("known");
    let (wait, now) = (std::time::Duration::from_secs(600), petasos_gateway::clock::now());
    let limit = |chat: i32| Penalty::new(telegram, Scope::Chat(chat.to_string()), wait, "slow down", now);
    store.write(|tx| (0..23).try_for_each(|chat| tx.put_penalty(&limit(chat)))).expect("stored");
    store.close().expect("closed");
    let listed = |args: &[&str]| {
        let listed = fine(&home.run(args));
        (
            listed.matches("is rate limited until").count(),
            listed.contains("and 3 more rate limits; --all lists them"),
        )
    };
    assert_eq!(listed(&["outbox"]), (20, true));
    assert_eq!(listed(&["outbox", "--all"]), (23, false));
    let limits = json(&home.run(&["outbox", "--json"]))["rate_limits"].as_array().map(Vec::len);
    assert_eq!(limits, Some(23));
}

#[test]
fn without_a_gateway_everything_that_reads_works_on_an_empty_home() {
    let home = Empty::new();
    assert!(fine(&home.run(&["version"])).starts_with("petasos "));
    assert_eq!(json(&home.run(&["version", "--json"]))["version"], env!("CARGO_PKG_VERSION"));
    assert!(fine(&home.run(&["status"])).contains("is stopped"));
    assert_eq!(json(&home.run(&["status", "--json"]))["state"], "stopped");
    assert!(fine(&home.run(&["sessions"])).contains("no conversation yet"));
    assert_eq!(json(&home.run(&["sessions", "--json"])), serde_json::json!([]));
    assert!(fine(&home.run(&["outbox"])).contains("nothing"));
    assert_eq!(fine(&home.run(&["outbox", "--state", "done"])).trim(), "none is done");
    let none = serde_json::json!({ "items": [], "dead_chats": [], "rate_limits": [] });
    assert_eq!(json(&home.run(&["outbox", "--json"])), none);
    assert!(fine(&home.run(&["pairing"])).contains("nobody has asked"));
    assert!(fine(&home.run(&["config", "path"])).contains("petasos.db"));
    assert!(fine(&home.run(&["config", "check"])).contains("ok:"));
    assert_eq!(json(&home.run(&["config", "check", "--json"]))["ok"], true);
    assert!(fine(&home.run(&["completions", "bash"])).contains("_petasos"));
    assert_eq!(json(&home.run(&["doctor", "--json"]))["ok"], true);
}

#[test]
fn without_a_gateway_what_needs_one_says_how_to_start_it() {
    let home = Empty::new();
    for command in ["open", "stop"] {
        let said = failed(&home.run(&[command]), 1);
        assert!(said.contains("no gateway is running") && said.contains("next: start one"), "{said}");
        let told: Value = serde_json::from_str(&failed(&home.run(&[command, "--json"]), 1)).expect("JSON");
        assert_eq!(told["error"]["next"], "start one: petasos run", "{told}");
        assert!(told["error"]["message"].as_str().is_some_and(|it| it.contains("no gateway")), "{told}");
    }
}

#[test]
fn a_home_that_is_a_file_is_refused_by_every_command() {
    let home = Empty::new();
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
        let said = failed(&petasos(&file, args).stdin(Stdio::null()).output().expect("runs"), 78);
        assert!(said.contains("is not a directory"), "{args:?}: {said}");
    }
}

#[test]
fn problems_come_in_the_order_of_the_file_each_with_its_own_word() {
    let home = Empty::with(
        "agent:\n  max_turns: many\nmodle: x\nweb:\n  port: 1\n  port: 2\nhuman_delay: {mode: natural}\n",
    );
    let said = stdout(&home.run(&["config", "check"]));
    let starts: Vec<&str> = said.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(starts, ["config.yaml:2", "config.yaml:3", "config.yaml:6", "config.yaml:7"], "{said}");
    assert!(
        said.contains("warning: config.yaml:6: web.port is set twice, on line 5 and on line 6"),
        "{said}"
    );
    assert!(said.contains("this version does nothing with it"), "{said}");
    let run = failed(&home.run(&["run"]), 78);
    assert!(run.contains("error: config.yaml:2: agent.max_turns"), "{run}");
}

#[test]
fn restrictions_that_are_not_implemented_are_reported() {
    let home = Empty::with(
        "terminal: {enabled: true, backend: docker}\ntoolsets: [file, no-such]\nprofile_routes: [{profile: work}]\n",
    );
    let check = fine(&home.run(&["config", "check"]));
    let doctor = fine(&home.run(&["doctor"]));
    for said in [&check, &doctor] {
        assert!(said.contains("terminal.backend is not implemented here: the terminal stays off"), "{said}");
        assert!(
            said.contains("toolsets: there is no toolset or tool no-such, so it grants nothing"),
            "{said}"
        );
        assert!(said.contains("profile_routes is not implemented here"), "{said}");
    }
    assert!(doctor.contains("tools outside of toolsets (file, no-such) are off"), "{doctor}");
    let status = fine(&home.run(&["status"]));
    assert!(status.contains("terminal.backend") && status.contains("tools outside of toolsets"), "{status}");
    let told = json(&home.run(&["status", "--json"]))["restrictions"].as_array().map(Vec::len);
    assert_eq!(told, Some(3));
    let explained = fine(&home.run(&["config", "explain", "terminal.backend"]));
    assert!(explained.contains("not implemented; the terminal stays off"), "{explained}");
}

#[test]
fn sections_and_variables_are_explained_like_keys() {
    let home = Empty::new();
    let section = fine(&home.run(&["config", "explain", "web"]));
    assert!(section.contains("web.port") && section.contains("web.host"), "{section}");
    let variable = fine(&home.run(&["config", "explain", "API_SERVER_PORT"]));
    assert!(variable.contains("web.port"), "{variable}");
    assert!(failed(&home.run(&["config", "explain", "web.prot"]), 78).contains("did you mean web.port?"));
}

#[test]
fn a_question_in_a_pipe_is_answered_by_the_demo_model_without_a_gateway() {
    let home = Empty::with("model: {provider: demo, demo_delay_ms: 0}\n");
    let mut child = home
        .command(&["chat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(b"What can you do?\n").expect("written");
    let output = child.wait_with_output().expect("ends");
    let said = fine(&output);
    assert!(said.len() > 20 && !said.contains('\u{1b}'), "{said}");
    assert!(stderr(&output).contains("no gateway is running"), "{}", stderr(&output));
    assert_eq!(json(&home.run(&["status", "--json"]))["stored_sessions"], 1);
}

#[test]
fn status_reports_a_database_that_cannot_be_read() {
    let home = Empty::with("model: {provider: demo}\n");
    std::fs::write(home.0.path().join("petasos.db"), "not a database, or not one yet").expect("written");
    let status = json(&home.run(&["status", "--json"]));
    assert_eq!(status["state"], "stopped");
    assert_eq!(status["stored_sessions"], serde_json::Value::Null);
    assert!(status["database_error"].is_string(), "{status}");
    let text = fine(&home.run(&["status"]));
    assert!(text.contains("cannot be read") && text.contains("petasos doctor"), "{text}");
}

#[test]
fn with_a_gateway_the_companions_tell_what_it_does() {
    let home = Empty::with("model: {provider: demo, demo_delay_ms: 0}\n");
    let gateway = home.gateway();
    assert!(fine(&home.run(&["status"])).contains("is running"));
    let status = json(&home.run(&["status", "--json"]));
    assert_eq!((&status["state"], &status["pid"]), (&"running".into(), &gateway.pid().into()));
    let link = fine(&home.run(&["open"]));
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/?token="), "{link}");
    assert!(json(&home.run(&["open", "--json"]))["url"].is_string());
    let answer = json(&home.run(&["chat", "--json", "hello"]));
    assert!(answer["answer"].as_str().is_some_and(|it| !it.is_empty()), "{answer}");
    let sessions = json(&home.run(&["sessions", "--json"]));
    let id = sessions[0]["id"].as_str().expect("an id").to_owned();
    let shown = fine(&home.run(&["sessions", "show", &id[..id.len() - 2]]));
    assert!(shown.contains("hello"), "{shown}");
    assert!(failed(&home.run(&["sessions", "show", "nothing"]), 1).contains("there is no session"));
    assert!(fine(&home.run(&["status"])).contains("1 stored"));
    assert!(fine(&home.run(&["doctor"])).contains("running, pid"));
    let stopped = json(&home.run(&["stop", "--json"]));
    assert_eq!(stopped["stopped"], true);
    assert_eq!(gateway.wait().0, Some(0));
}

#[test]
fn a_question_is_answered_by_the_model_of_a_running_gateway_and_a_failure_is_an_exit_code() {
    let mut bench = Bench::with("agent: {api_max_retries: 0}\n");
    bench.model.respond(|request| match request.last_user.contains("fail") {
        true => Answer::status(400, "no"),
        false => Answer::text("**Four.**"),
    });
    bench.start();
    assert_eq!(fine(&bench.run(&["chat", "What is", "2+2?"])), "**Four.**\n");
    let said = failed(&bench.run(&["chat", "please fail"]), 1);
    assert!(said.starts_with("error: "), "{said}");
}

#[test]
fn a_question_that_a_drain_refuses_is_told_how_to_end_it() {
    let home = Empty::with("model: {provider: demo, demo_delay_ms: 0}\n");
    fine(&home.run(&["drain"]));
    let said = failed(&home.run(&["chat", "hello"]), 1);
    assert!(said.contains("draining for maintenance") && said.contains("petasos resume ends it"), "{said}");
    fine(&home.run(&["resume"]));
    fine(&home.run(&["chat", "hello"]));
}

#[test]
fn a_stranger_pairs_is_answered_and_can_be_shut_out_again() {
    let mut bench = Bench::new();
    launch_strict(&mut bench);
    bench.telegram.push_text(7, 7, "let me in");
    let code = code_in(&bench.wait_messages(7, 1)[0]);
    assert!(fine(&bench.run(&["pairing"])).contains("asks"));
    let said = failed(&bench.run(&["pairing", "approve", "telegram", "short"]), 1);
    assert!(said.contains("8 letters and digits") && said.contains("petasos pairing"), "{said}");
    assert!(fine(&bench.run(&["pairing", "approve", "telegram", &code])).contains("may talk"));
    bench.telegram.push_text(7, 7, "hello");
    assert!(bench.wait_messages(7, 2).iter().any(|text| text == "echo: hello"));
    let listed = json(&bench.run(&["pairing", "--json"]));
    assert_eq!(listed[0]["approved"][0]["user_id"], "7");
    assert!(fine(&bench.run(&["pairing", "revoke", "telegram", "7"])).contains("is out"));
    bench.telegram.push_text(7, 7, "still there?");
    let seen = bench.telegram.wait_until(SOON, |world| (world.pending_updates() == 0).then_some(()));
    assert!(seen.is_some());
    bench.settle();
    assert!(!bench.telegram.texts(7).iter().any(|text| text.contains("still there")));
}

#[test]
fn five_wrong_codes_close_pairing_and_unlock_opens_it() {
    let mut bench = Bench::new();
    let home = bench.home.path().to_owned();
    let approve =
        |code: &str| petasos(&home, &["pairing", "approve", "telegram", code]).output().expect("runs");
    for more in
        ["4 more wrong codes close", "3 more wrong codes", "2 more wrong codes", "1 more wrong code closes"]
    {
        let said = failed(&approve("ABCD2345"), 1);
        assert!(said.contains(more), "{said}");
    }
    assert!(failed(&approve("ABCD2345"), 1).contains("closed for an hour"));
    let said = failed(&approve("ABCD2345"), 1);
    assert!(said.contains("pairing is closed until ") && said.contains("min)"), "{said}");
    assert!(fine(&bench.run(&["pairing"])).contains("is closed until"));
    assert!(json(&bench.run(&["pairing", "--json"]))[0]["locked_until"].is_u64());
    assert!(stdout(&bench.run(&["doctor"])).contains("closed on telegram"));
    assert!(fine(&bench.run(&["pairing", "unlock", "telegram"])).contains("open again"));
    assert!(failed(&approve("ABCD2345"), 1).contains("4 more wrong codes"));
    bench.start();
    assert!(
        fine(&bench.run(&["pairing", "unlock", "telegram"])).contains("was open"),
        "a running gateway, too"
    );
    assert!(failed(&approve("ABCD2345"), 1).contains("4 more wrong codes"));
}

#[test]
fn a_database_that_is_gone_is_told_with_both_of_its_files() {
    let home = Empty::with("model: {provider: demo, demo_delay_ms: 0}\n");
    fine(&home.run(&["chat", "hello"]));
    let database = home.0.path().join("petasos.db");
    std::fs::remove_file(&database).expect("removed");
    for args in [&["run"][..], &["sessions"], &["status"], &["outbox"], &["pairing"]] {
        let said = failed(&home.run(args), 1);
        let next = said.split("next: ").nth(1).unwrap_or_default();
        assert!(next.contains("petasos.db") && next.contains(".petasos-db"), "{args:?}: {said}");
    }
    assert!(stdout(&home.run(&["doctor"])).contains("fail database"));
}

#[test]
fn a_question_survives_a_gateway_that_dies_and_comes_back() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(Point::Before);
    bench.model.respond(|_| Answer::text("here it is"));
    bench.start();
    let mut chat = bench
        .command(&["chat", "are you there?"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    assert!(gate.wait(SOON), "the model was asked");
    bench.kill();
    let mut said = BufReader::new(chat.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("the gateway is gone; waiting up to 60 s"), "{line}");
    drop(gate);
    bench.start();
    assert_eq!(fine(&chat.wait_with_output().expect("ends")), "here it is\n");
}

/// A gateway that asks strangers for a code.
fn launch_strict(bench: &mut Bench) {
    let child = bench
        .command(&["run"])
        .env("GATEWAY_ALLOW_ALL_USERS", "false")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    bench.gateway = Some(Gateway::of(child.expect("petasos starts")));
    let polling = bench.telegram.wait_until(SOON, |world| world.calls_of("getUpdates").next().map(|_| ()));
    assert!(polling.is_some(), "the gateway does not poll");
}

/// The word of eight capital letters and digits.
#[track_caller]
fn code_in(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let code = words
        .filter(|word| word.len() == 8)
        .find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()));
    code.map(str::to_owned).unwrap_or_else(|| panic!("no code in {text:?}"))
}

#[test]
fn sessions_json_is_taken_over_once_and_kept_as_a_copy() {
    let mut bench = Bench::new();
    let file = bench.home.path().join("sessions/sessions.json");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    let legacy = r#"{"_README": "old", "bad": true, "agent:main:telegram:dm:7": {"session_key": "agent:main:telegram:dm:7",
        "session_id": "20261115_181205_13f6a7af", "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05",
        "platform": "telegram", "origin": {"platform": "telegram", "chat_id": "7", "chat_type": "dm"}}}"#;
    std::fs::write(&file, legacy).expect("written");
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    let shown = fine(&bench.run(&["sessions", "show", "20261115_181205"]));
    assert!(shown.contains("hello"), "the old conversation goes on: {shown}");
    let until = std::time::Instant::now() + SOON;
    let copy = loop {
        let copy = std::fs::read_to_string(&file).expect("there at any moment");
        if copy.contains("petasos.db") {
            break copy;
        }
        assert!(std::time::Instant::now() < until, "never copied: {copy}");
    };
    assert!(copy.contains("20261115_181205_13f6a7af"), "{copy}");
}
