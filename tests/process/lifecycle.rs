//! The real program drained, signalled, killed and started again, and what its files say meanwhile.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Bench, Gateway, SOON};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::Fault;
use rusqlite::Connection;
use serde_json::{Value, json};

const MARKER: &str = ".drain_request.json";
/// A stop that would wait for ever, as far as a test is concerned.
const PATIENT: &str = "agent:\n  restart_drain_timeout: 600\n";

fn mark(bench: &Bench, content: impl AsRef<[u8]>) {
    std::fs::write(bench.home.path().join(MARKER), content).expect("a marker");
}

fn unmark(bench: &Bench) {
    std::fs::remove_file(bench.home.path().join(MARKER)).expect("the marker was there");
}

fn exists(bench: &Bench, name: &str) -> bool {
    bench.home.path().join(name).exists()
}

/// One chat asks something, and the model does not answer.
fn hang(bench: &Bench, chat: i64) -> petasos_fakes::Gate {
    let gate = bench.model.gate(Point::Before);
    bench.telegram.push_text(chat, chat, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    gate
}

/// The routing entry of a private chat.
fn entry(bench: &Bench, chat: i64) -> Value {
    let store = Connection::open(bench.database()).expect("a database");
    let text: String = store
        .query_row("SELECT entry FROM routing WHERE session_key LIKE ?1", [format!("%:{chat}")], |row| {
            row.get(0)
        })
        .expect("an entry");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_marker_drains_a_running_gateway_and_its_removal_lets_it_run_again() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    mark(&bench, r#"{"action":"drain","principal":"nas"}"#);
    let drained = bench.await_state("draining");
    assert_eq!(
        (&drained["drain"]["principal"], &drained["drain"]["kind"]),
        (&json!("nas"), &json!("external"))
    );
    bench.telegram.push_text(7, 7, "hello");
    let refused = bench.wait_messages(7, 1);
    for phrase in ["draining", "maintenance", "resend"] {
        assert!(refused[0].contains(phrase), "{refused:?}");
    }
    unmark(&bench);
    bench.await_state("running");
    bench.telegram.push_text(7, 7, "hello again");
    assert_eq!(bench.wait_messages(7, 2)[1], "echo: hello again");
    assert_eq!(bench.model.requests().len(), 1);
}

#[test]
fn a_marker_from_before_the_start_counts_before_any_message_is_taken() {
    let mut bench = Bench::new();
    mark(&bench, "{not valid json");
    bench.telegram.push_text(7, 7, "hello");
    bench.start();
    bench.await_state("draining");
    assert!(bench.wait_messages(7, 1)[0].contains("draining"));
    assert_eq!(bench.model.requests().len(), 0);
}

#[test]
fn whatever_a_marker_holds_the_gateway_lives_and_only_a_stale_one_does_not_count() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    let old = r#"{"action":"drain","requested_at":"2001-01-01T00:00:00+00:00"}"#;
    let foreign = r#"{"action":"drain","epoch":"00000000-0000-0000-0000-000000000000:1"}"#;
    for counts in
        [&b""[..], b"{not valid json", b"[1]", b"\xff\xfe", b"{}", b"null", br#"{"requested_at":"soon"}"#]
    {
        mark(&bench, counts);
        bench.await_state("draining");
        for stale in [old, foreign] {
            mark(&bench, stale);
            bench.await_state("running");
            assert!(exists(&bench, MARKER), "a stale marker is left where it is");
            mark(&bench, counts);
            bench.await_state("draining");
        }
        unmark(&bench);
        bench.await_state("running");
    }
}

#[test]
fn a_status_file_that_cannot_be_written_disturbs_nothing() {
    let mut bench = Bench::new();
    std::fs::create_dir_all(bench.home.path().join("gateway_state.json/in the way")).expect("a directory");
    bench.start();
    mark(&bench, "{}");
    let until = Instant::now() + SOON;
    while bench.status()["gateway_state"] != "draining" {
        assert!(Instant::now() < until, "never drained");
    }
    unmark(&bench);
    while bench.status()["gateway_state"] != "running" {
        assert!(Instant::now() < until, "never released");
    }
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let (code, said, _) = bench.terminate();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("gateway_state.json cannot be written").count(), 1, "{said}");
}

#[test]
fn once_a_stop_has_begun_the_end_of_a_drain_does_not_bring_it_back() {
    let mut bench = Bench::with(PATIENT);
    bench.start();
    let gate = hang(&bench, 7);
    mark(&bench, "{}");
    bench.await_state("draining");
    bench.gateway.as_ref().expect("running").signal("INT");
    let leaving = |state: &Value| state["drain"]["kind"] == "shutdown";
    let until = Instant::now() + SOON;
    while !bench.state_file().is_some_and(|state| leaving(&state)) {
        assert!(Instant::now() < until, "the stop never began");
    }
    unmark(&bench);
    // The status file is renewed every second of a stop: two changes of it prove that the watcher has looked.
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 3 {
        let state = bench.state_file().expect("a state");
        assert_eq!(state["gateway_state"], "draining", "{state}");
        seen.insert(state["updated_at"].to_string());
        assert!(Instant::now() < until, "the status file stands still");
    }
    gate.open();
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(bench.state_file().expect("a state")["gateway_state"], "stopped");
    assert_eq!(bench.telegram.texts(7).last().map(String::as_str), Some("echo: hello"));
}

#[test]
fn every_way_to_ask_for_the_end_has_its_exit_code_and_leaves_its_files() {
    for (planned, signal, code, state) in [
        (false, Some("TERM"), 1, "running"),
        (true, None, 0, "stopped"),
        (true, Some("TERM"), 0, "stopped"),
        (false, Some("INT"), 0, "stopped"),
        (false, Some("USR1"), 75, "stopped"),
    ] {
        let mut bench = Bench::new();
        bench.start();
        let started = bench.await_state("running");
        assert!(exists(&bench, "gateway.pid") && exists(&bench, "gateway.lock"), "{signal:?}");
        if planned {
            let marker = json!({
                "target_pid": started["pid"], "target_start_time": started["start_time"], "stopper_pid": 1,
                "written_at": now_iso(),
            });
            std::fs::write(bench.home.path().join(".gateway-planned-stop.json"), marker.to_string())
                .expect("a marker");
        }
        if let Some(signal) = signal {
            bench.gateway.as_ref().expect("running").signal_if_alive(signal);
        }
        let (got, said) = bench.gateway.take().expect("running").wait();
        let state_file = bench.state_file().expect("a state");
        assert_eq!(
            (got, state_file["gateway_state"].as_str()),
            (Some(code), Some(state)),
            "{signal:?}: {said}"
        );
        assert_eq!(exists(&bench, ".restart_pending.json"), signal == Some("USR1"), "{signal:?}");
        assert_eq!(state_file["restart_requested"], signal == Some("USR1"), "{signal:?}");
        assert!(exists(&bench, ".clean_shutdown") && !exists(&bench, "gateway.pid"), "{signal:?}");
        assert!(
            exists(&bench, "gateway.lock") && !exists(&bench, ".gateway-planned-stop.json"),
            "{signal:?}"
        );
    }
}

fn now_iso() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S+00:00"]).output();
    String::from_utf8(output.expect("date runs").stdout).expect("text").trim().to_owned()
}

#[test]
fn a_planned_stop_of_another_process_is_ignored_and_an_old_one_removed() {
    let mut bench = Bench::new();
    bench.start();
    let state = bench.await_state("running");
    let path = bench.home.path().join(".gateway-planned-stop.json");
    let marker = |pid: &Value, at: &str| {
        json!({"target_pid": pid, "target_start_time": state["start_time"], "written_at": at}).to_string()
    };
    std::fs::write(&path, marker(&state["pid"], "2001-01-01T00:00:00+00:00")).expect("a marker");
    let until = Instant::now() + SOON;
    while path.exists() {
        assert!(Instant::now() < until, "an old marker stays");
    }
    let beside = bench.home.path().join("marker");
    std::fs::write(&beside, marker(&json!(1), &now_iso())).expect("a marker");
    std::fs::rename(&beside, &path).expect("put in place at once");
    // A drain that comes and goes proves that the same watcher has looked since.
    mark(&bench, "{}");
    bench.await_state("draining");
    unmark(&bench);
    bench.await_state("running");
    assert!(path.exists(), "a marker for somebody else was taken");
}

#[test]
fn a_turn_that_a_restart_cuts_off_is_marked_and_goes_on_by_itself() {
    let mut bench = Bench::new();
    bench.start();
    let gate = hang(&bench, 7);
    bench.gateway.as_ref().expect("running").signal("USR1");
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
    let cut_off = entry(&bench, 7);
    assert_eq!(
        (&cut_off["resume_pending"], &cut_off["resume_reason"]),
        (&json!(true), &json!("restart_timeout"))
    );
    assert!(!exists(&bench, ".clean_shutdown"));
    let banner = bench.telegram.texts(7);
    assert_eq!(banner.len(), 1, "{banner:?}");
    assert!(banner[0].contains("restarting") && banner[0].contains("try to resume"), "{banner:?}");
    gate.open();
    bench.start();
    assert_eq!(bench.wait_messages(7, 2)[1], "echo: hello");
    bench.settle();
    let input = bench.model.requests().last().expect("a request").last_user.clone();
    assert!(
        input.starts_with("[System note:")
            && input.contains("gateway restart")
            && input.ends_with("\n\nhello")
    );
    let after = entry(&bench, 7);
    assert_eq!((&after["resume_pending"], &after["resume_reason"]), (&json!(false), &Value::Null));
    assert_eq!(bench.model.requests().len(), 2, "no turn runs twice");
}

#[test]
fn turns_that_a_kill_cut_off_go_on_however_long_they_had_run() {
    let mut bench = Bench::new();
    bench.start();
    let gate = bench.model.gate(Point::Before);
    for chat in [7, 8] {
        bench.telegram.push_text(chat, chat, "hello");
    }
    assert!(gate.wait_for(2, SOON), "the model was never asked");
    bench.kill();
    age(&bench.database(), "%:8", Duration::from_secs(600));
    gate.open();
    bench.start();
    for chat in [7, 8] {
        assert_eq!(bench.wait_messages(chat, 1), ["echo: hello"]);
    }
    bench.settle();
    assert_eq!(bench.model.requests().len(), 4);
}

/// As if the session's turn had begun earlier by so much.
fn age(database: &Path, key: &str, by: Duration) {
    let store = Connection::open(database).expect("a database");
    let by = i64::try_from(by.as_millis()).expect("a short time");
    let moved = store
        .execute(
            "UPDATE turns SET started_at = started_at - ?2,
                 state = json_set(state, '$.started_at', (state ->> '$.started_at') - ?2)
             WHERE session_key LIKE ?1",
            rusqlite::params![key, by],
        )
        .expect("a turn");
    assert_eq!(moved, 1);
    store
        .execute(
            "UPDATE messages SET at = at - ?2 WHERE session IN (SELECT session FROM turns WHERE session_key LIKE ?1)",
            rusqlite::params![key, by],
        )
        .expect("its messages");
}

#[test]
fn a_turn_that_was_cut_off_too_long_ago_is_reported_and_not_run() {
    let mut bench = Bench::new();
    bench.start();
    let gate = hang(&bench, 7);
    bench.kill();
    age(&bench.database(), "%:7", Duration::from_secs(3700));
    gate.open();
    bench.start();
    assert!(bench.wait_messages(7, 1)[0].contains("interrupted before I could answer"));
    bench.settle();
    assert_eq!(bench.model.requests().len(), 1);
}

#[test]
fn a_chat_that_was_only_used_shortly_before_a_kill_gets_no_turn_it_did_not_ask_for() {
    for mode in ["journal", "resume", "suspend"] {
        let mut bench = Bench::with(&format!("gateway:\n  crash_recovery: {mode}\n"));
        bench.start();
        bench.telegram.push_text(7, 7, "hello");
        bench.wait_messages(7, 1);
        bench.settle();
        bench.kill();
        bench.start();
        bench.await_state("running");
        bench.telegram.push_text(7, 7, "still there?");
        let texts = bench.wait_messages(7, if mode == "suspend" { 3 } else { 2 });
        assert_eq!(texts.last().map(String::as_str), Some("echo: still there?"), "{mode}");
        bench.settle();
        let requests = bench.model.requests();
        let last = requests.last().expect("a request");
        assert_eq!(requests.len(), 2, "{mode}: a turn nobody asked for");
        assert_eq!(last.last_user.contains("[System note:"), mode != "journal", "{mode}: {}", last.last_user);
        let history = String::from_utf8_lossy(&last.raw).contains("echo: hello");
        assert_eq!(history, mode != "suspend", "{mode}");
    }
}

#[test]
fn a_restart_command_is_obeyed_once_and_answered_when_we_are_back() {
    let mut bench = Bench::new();
    bench.launch_with(&[("INVOCATION_ID", "x")]);
    bench.telegram.push_text(7, 7, "/restart");
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
    assert!(bench.telegram.texts(7)[0].contains("Restarting gateway"), "{:?}", bench.telegram.texts(7));
    assert!(exists(&bench, ".restart_last_processed.json") && exists(&bench, ".restart_notify.json"));
    // The platform delivers the same command again with the first poll: nothing happens; a later one is obeyed.
    bench.telegram.on("getUpdates").does(Fault::DuplicateUpdates);
    bench.launch_with(&[("INVOCATION_ID", "x")]);
    assert!(bench.wait_messages(7, 2)[1].contains("Gateway restarted successfully"));
    assert!(!exists(&bench, ".restart_notify.json"));
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 3)[2], "echo: hello");
    assert_eq!(bench.telegram.texts(7).iter().filter(|text| text.contains("Restarting gateway")).count(), 1);
    bench.telegram.push_text(7, 7, "/restart");
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
}

#[test]
fn a_gateway_without_any_platform_it_can_reach_is_degraded_until_it_can() {
    let mut bench = Bench::with("");
    bench.telegram.down();
    bench.launch();
    bench.await_state("degraded");
    bench.telegram.up().expect("telegram comes back");
    let until = Instant::now() + Duration::from_secs(60);
    while bench.state_file().is_none_or(|state| state["gateway_state"] != "running") {
        assert!(Instant::now() < until, "never came back");
    }
}

#[test]
fn a_gateway_that_no_platform_will_have_says_so_and_stays_down() {
    let mut bench = Bench::new();
    bench.telegram.expect_token("999:other");
    bench.launch();
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(78), "{said}");
    let state = bench.state_file().expect("a state");
    assert_eq!(state["gateway_state"], "startup_failed", "{state}");
    assert!(state["exit_reason"].as_str().is_some_and(|reason| reason.contains("telegram")), "{state}");
    assert!(said.contains("error:") && said.contains("next:"), "{said}");
}

#[test]
fn the_second_signal_does_not_wait_for_turns_and_the_third_for_nothing() {
    let mut bench = Bench::with(PATIENT);
    bench.start();
    let gate = hang(&bench, 7);
    let gateway = bench.gateway.take().expect("running");
    gateway.signal("INT");
    assert!(bench.wait_messages(7, 1)[0].contains("shutting down"));
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(entry(&bench, 7)["resume_reason"], "shutdown_timeout");

    gate.open();
    bench.start();
    bench.wait_messages(7, 2);
    bench.settle();
    bench.telegram.on("sendMessage").always().does(Fault::Hang);
    let _gate = hang(&bench, 7);
    let gateway = bench.gateway.take().expect("running");
    gateway.signal("INT");
    let leaving = |state: Value| state["drain"]["kind"] == "shutdown";
    let until = Instant::now() + SOON;
    while !bench.state_file().is_some_and(leaving) {
        assert!(Instant::now() < until, "the stop never began");
    }
    gateway.signal("INT");
    gateway.signal("INT");
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn an_operators_stop_overrides_a_signal_that_nobody_announced() {
    let mut bench = Bench::with(PATIENT);
    bench.start();
    let _gate = hang(&bench, 7);
    let gateway = bench.gateway.take().expect("running");
    gateway.signal("TERM");
    assert!(bench.wait_messages(7, 1)[0].contains("shutting down"));
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(bench.state_file().expect("a state")["gateway_state"], "stopped");
}

const STORM: [(&str, &str); 2] =
    [("HERMES_GATEWAY_MAX_STARTS", "1"), ("HERMES_GATEWAY_START_WINDOW_S", "600")];

#[test]
fn respawn_storm_holds_suspects_and_answers_everybody_else() {
    let mut bench = Bench::new();
    bench.launch_with(&STORM);
    let gate = hang(&bench, 7);
    bench.kill();
    gate.open();
    bench.launch_with(&STORM);
    bench.telegram.push_text(8, 8, "hello");
    assert_eq!(bench.wait_messages(8, 1), ["echo: hello"]);
    let kept = bench.wait_messages(7, 1);
    assert!(kept[0].contains("Your message is kept") && kept[0].contains("10 seconds"), "{kept:?}");
    assert_eq!(bench.model.requests().len(), 2, "the suspect is not asked again yet");
    let said = bench.kill();
    assert!(said.contains("started too often"), "{said}");
    assert!(said.contains("gateway.respawn_storm.max_starts: 0 disables this"), "{said}");
}

#[test]
fn respawn_storm_holds_nothing_of_a_gateway_that_replaces_another() {
    let mut bench = Bench::new();
    bench.launch_with(&STORM);
    bench.await_state("running");
    let old = bench.gateway.take().expect("running");
    let mut replace = bench.command(&["run", "--replace"]);
    replace.envs(STORM).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bench.gateway = Some(Gateway::of(replace.spawn().expect("starts")));
    bench.await_state("running");
    assert_eq!(old.wait().0, Some(0));
    let said = bench.kill();
    assert!(!said.contains("started too often"), "{said}");
    std::fs::write(bench.home.path().join("config.yaml"), "agent: {max_turns: many}\n").expect("written");
    bench.launch_with(&STORM);
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(78), "{said}");
    assert_eq!(bench.state_file().expect("a state")["gateway_state"], "startup_failed");
}

#[test]
fn a_service_manager_hears_that_we_are_ready_alive_and_on_our_way_out() {
    let mut bench = Bench::with(PATIENT);
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a timeout");
    let path = path.to_str().expect("text").to_owned();
    bench.launch_with(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "200000")]);
    let mut heard = Vec::new();
    let hear = |heard: &mut Vec<String>, want: &str| {
        while !heard.iter().any(|word| word.contains(want)) {
            let mut buffer = [0; 512];
            let length =
                manager.recv(&mut buffer).unwrap_or_else(|error| panic!("never {want}: {heard:?}: {error}"));
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    };
    hear(&mut heard, "READY=1");
    hear(&mut heard, "WATCHDOG=1");
    assert!(exists(&bench, "state/gateway.heartbeat"));
    let gate = bench.model.gate(Point::Before);
    for chat in [7, 8] {
        bench.telegram.push_text(chat, chat, "hello");
    }
    assert!(gate.wait_for(2, SOON), "the model was never asked");
    bench.gateway.as_ref().expect("running").signal("INT");
    hear(&mut heard, "STOPPING=1");
    for chat in [7, 8] {
        assert!(bench.wait_messages(chat, 1)[0].contains("shutting down"));
    }
    gate.open();
    hear(&mut heard, "EXTEND_TIMEOUT_USEC=");
    let (code, said) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{said}");
}
