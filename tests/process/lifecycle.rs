//! Drain, signals, kills and restarts, and the state files that they leave.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{GatewayProcess, ProgramFixture, SOON, eventually};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::Fault;
use rusqlite::Connection;
use serde_json::{Value, json};

const MARKER: &str = ".drain_request.json";
/// Longer than any test takes.
const LONG_DRAIN: &str = "agent:\n  restart_drain_timeout: 600\n";

fn write_marker(fixture: &ProgramFixture, content: impl AsRef<[u8]>) {
    std::fs::write(fixture.home.path().join(MARKER), content).expect("a marker");
}

fn remove_marker(fixture: &ProgramFixture) {
    std::fs::remove_file(fixture.home.path().join(MARKER)).expect("the marker was there");
}

fn exists(fixture: &ProgramFixture, name: &str) -> bool {
    fixture.home.path().join(name).exists()
}

/// Starts a turn in this chat; the model answers when the gate opens.
fn start_gated_turn(fixture: &ProgramFixture, chat: i64) -> petasos_fakes::Gate {
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(chat, chat, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    gate
}

fn is_stopping(fixture: &ProgramFixture) -> bool {
    fixture.state_file().is_some_and(|state| state["drain"]["kind"] == "shutdown")
}

fn routing_entry(fixture: &ProgramFixture, chat: i64) -> Value {
    let store = Connection::open(fixture.database()).expect("a database");
    let text: String = store
        .query_row("SELECT entry FROM routing WHERE session_key LIKE ?1", [format!("%:{chat}")], |row| {
            row.get(0)
        })
        .expect("an entry");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn drain_marker_drains_and_its_removal_resumes() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    write_marker(&fixture, r#"{"action":"drain","principal":"nas"}"#);
    let drained = fixture.wait_state("draining");
    assert_eq!(
        (&drained["drain"]["principal"], &drained["drain"]["kind"]),
        (&json!("nas"), &json!("external"))
    );
    fixture.telegram.push_text(7, 7, "hello");
    let refused = fixture.wait_messages(7, 1);
    for phrase in ["draining", "maintenance", "resend"] {
        assert!(refused[0].contains(phrase), "{refused:?}");
    }
    remove_marker(&fixture);
    fixture.wait_state("running");
    fixture.telegram.push_text(7, 7, "hello again");
    assert_eq!(fixture.wait_messages(7, 2)[1], "echo: hello again");
    assert_eq!(fixture.model.requests().len(), 1);
}

#[test]
fn drain_marker_present_at_start_blocks_messages() {
    let mut fixture = ProgramFixture::new();
    write_marker(&fixture, "{not valid json");
    fixture.telegram.push_text(7, 7, "hello");
    fixture.start();
    fixture.wait_state("draining");
    assert!(fixture.wait_messages(7, 1)[0].contains("draining"));
    assert_eq!(fixture.model.requests().len(), 0);
}

#[test]
fn any_fresh_drain_marker_counts_and_stale_ones_do_not() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    let old = r#"{"action":"drain","requested_at":"2001-01-01T00:00:00+00:00"}"#;
    let foreign = r#"{"action":"drain","epoch":"00000000-0000-0000-0000-000000000000:1"}"#;
    for counts in
        [&b""[..], b"{not valid json", b"[1]", b"\xff\xfe", b"{}", b"null", br#"{"requested_at":"soon"}"#]
    {
        write_marker(&fixture, counts);
        fixture.wait_state("draining");
        for stale in [old, foreign] {
            write_marker(&fixture, stale);
            fixture.wait_state("running");
            assert!(exists(&fixture, MARKER), "a stale marker was removed");
            write_marker(&fixture, counts);
            fixture.wait_state("draining");
        }
        remove_marker(&fixture);
        fixture.wait_state("running");
    }
}

#[test]
fn unwritable_status_file_is_logged_once() {
    let mut fixture = ProgramFixture::new();
    std::fs::create_dir_all(fixture.home.path().join("gateway_state.json/in the way")).expect("a directory");
    fixture.start();
    write_marker(&fixture, "{}");
    eventually("draining", || fixture.status()["gateway_state"] == "draining");
    remove_marker(&fixture);
    eventually("running", || fixture.status()["gateway_state"] == "running");
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    let (code, said, _) = fixture.terminate();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("gateway_state.json cannot be written").count(), 1, "{said}");
}

#[test]
fn ending_a_drain_does_not_cancel_a_stop() {
    let mut fixture = ProgramFixture::with_config(LONG_DRAIN);
    fixture.start();
    let gate = start_gated_turn(&fixture, 7);
    write_marker(&fixture, "{}");
    fixture.wait_state("draining");
    fixture.gateway.as_ref().expect("running").signal("INT");
    eventually("the stop begins", || is_stopping(&fixture));
    remove_marker(&fixture);
    // A stop rewrites the state file every second: two changes prove that the marker watcher has run.
    let mut seen = std::collections::BTreeSet::new();
    eventually("two changes of the state file", || {
        let state = fixture.state_file().expect("a state");
        assert_eq!(state["gateway_state"], "draining", "{state}");
        seen.insert(state["updated_at"].to_string());
        seen.len() == 3
    });
    gate.open();
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fixture.state_file().expect("a state")["gateway_state"], "stopped");
    assert_eq!(fixture.telegram.texts(7).last().map(String::as_str), Some("echo: hello"));
}

#[test]
fn shutdown_reasons_set_exit_code_and_files() {
    for (planned, signal, code, state) in [
        (false, Some("TERM"), 1, "running"),
        (true, None, 0, "stopped"),
        (true, Some("TERM"), 0, "stopped"),
        (false, Some("INT"), 0, "stopped"),
        (false, Some("USR1"), 75, "stopped"),
    ] {
        let mut fixture = ProgramFixture::new();
        fixture.start();
        let started = fixture.wait_state("running");
        assert!(exists(&fixture, "gateway.pid") && exists(&fixture, "gateway.lock"), "{signal:?}");
        if planned {
            let marker = json!({
                "target_pid": started["pid"], "target_start_time": started["start_time"], "stopper_pid": 1,
                "written_at": now_iso(),
            });
            std::fs::write(fixture.home.path().join(".gateway-planned-stop.json"), marker.to_string())
                .expect("a marker");
        }
        if let Some(signal) = signal {
            fixture.gateway.as_ref().expect("running").signal_if_alive(signal);
        }
        let (got, said) = fixture.gateway.take().expect("running").wait();
        let state_file = fixture.state_file().expect("a state");
        assert_eq!(
            (got, state_file["gateway_state"].as_str()),
            (Some(code), Some(state)),
            "{signal:?}: {said}"
        );
        assert_eq!(exists(&fixture, ".restart_pending.json"), signal == Some("USR1"), "{signal:?}");
        assert_eq!(state_file["restart_requested"], signal == Some("USR1"), "{signal:?}");
        assert!(exists(&fixture, ".clean_shutdown") && !exists(&fixture, "gateway.pid"), "{signal:?}");
        assert!(
            exists(&fixture, "gateway.lock") && !exists(&fixture, ".gateway-planned-stop.json"),
            "{signal:?}"
        );
    }
}

fn now_iso() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S+00:00"]).output();
    String::from_utf8(output.expect("date runs").stdout).expect("text").trim().to_owned()
}

#[test]
fn ignores_foreign_planned_stop_and_removes_stale_one() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let state = fixture.wait_state("running");
    let path = fixture.home.path().join(".gateway-planned-stop.json");
    let marker = |pid: &Value, at: &str| {
        json!({"target_pid": pid, "target_start_time": state["start_time"], "written_at": at}).to_string()
    };
    std::fs::write(&path, marker(&state["pid"], "2001-01-01T00:00:00+00:00")).expect("a marker");
    eventually("the stale marker is removed", || !path.exists());
    let temporary = fixture.home.path().join("marker");
    std::fs::write(&temporary, marker(&json!(1), &now_iso())).expect("a marker");
    std::fs::rename(&temporary, &path).expect("renamed");
    // A complete drain proves that the marker watcher has run since.
    write_marker(&fixture, "{}");
    fixture.wait_state("draining");
    remove_marker(&fixture);
    fixture.wait_state("running");
    assert!(path.exists(), "the marker of another process was consumed");
}

#[test]
fn turn_interrupted_by_restart_resumes() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let gate = start_gated_turn(&fixture, 7);
    fixture.gateway.as_ref().expect("running").signal("USR1");
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
    let cut_off = routing_entry(&fixture, 7);
    assert_eq!(
        (&cut_off["resume_pending"], &cut_off["resume_reason"]),
        (&json!(true), &json!("restart_timeout"))
    );
    assert!(!exists(&fixture, ".clean_shutdown"));
    let banner = fixture.telegram.texts(7);
    assert_eq!(banner.len(), 1, "{banner:?}");
    assert!(banner[0].contains("restarting") && banner[0].contains("try to resume"), "{banner:?}");
    gate.open();
    fixture.start();
    assert_eq!(fixture.wait_messages(7, 2)[1], "echo: hello");
    fixture.wait_idle();
    let input = fixture.model.requests().last().expect("a request").last_user.clone();
    assert!(
        input.starts_with("[System note:")
            && input.contains("gateway restart")
            && input.ends_with("\n\nhello")
    );
    let after = routing_entry(&fixture, 7);
    assert_eq!((&after["resume_pending"], &after["resume_reason"]), (&json!(false), &Value::Null));
    assert_eq!(fixture.model.requests().len(), 2, "no turn runs twice");
}

#[test]
fn killed_turns_resume_regardless_of_their_duration() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let gate = fixture.model.gate(Point::Before);
    for chat in [7, 8] {
        fixture.telegram.push_text(chat, chat, "hello");
    }
    assert!(gate.wait_for(2, SOON), "the model was never asked");
    fixture.kill();
    age_turn(&fixture.database(), "%:8", Duration::from_secs(600));
    gate.open();
    fixture.start();
    for chat in [7, 8] {
        assert_eq!(fixture.wait_messages(chat, 1), ["echo: hello"]);
    }
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), 4);
}

/// Moves the start of the session's turn into the past.
fn age_turn(database: &Path, key: &str, by: Duration) {
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
fn old_interrupted_turn_is_reported_and_not_resumed() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let gate = start_gated_turn(&fixture, 7);
    fixture.kill();
    age_turn(&fixture.database(), "%:7", Duration::from_secs(3700));
    gate.open();
    fixture.start();
    assert!(fixture.wait_messages(7, 1)[0].contains("interrupted before I could answer"));
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), 1);
}

#[test]
fn idle_chat_gets_no_turn_after_a_kill() {
    for mode in ["journal", "resume", "suspend"] {
        let mut fixture = ProgramFixture::with_config(&format!("gateway:\n  crash_recovery: {mode}\n"));
        fixture.start();
        fixture.telegram.push_text(7, 7, "hello");
        fixture.wait_messages(7, 1);
        fixture.wait_idle();
        fixture.kill();
        fixture.start();
        fixture.wait_state("running");
        fixture.telegram.push_text(7, 7, "still there?");
        let texts = fixture.wait_messages(7, if mode == "suspend" { 3 } else { 2 });
        assert_eq!(texts.last().map(String::as_str), Some("echo: still there?"), "{mode}");
        fixture.wait_idle();
        let requests = fixture.model.requests();
        let last = requests.last().expect("a request");
        assert_eq!(requests.len(), 2, "{mode}: an extra turn");
        assert_eq!(last.last_user.contains("[System note:"), mode != "journal", "{mode}: {}", last.last_user);
        let history = String::from_utf8_lossy(&last.raw).contains("echo: hello");
        assert_eq!(history, mode != "suspend", "{mode}");
    }
}

#[test]
fn restart_command_runs_once_and_confirms_after_start() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&[("INVOCATION_ID", "x")]);
    fixture.telegram.push_text(7, 7, "/restart");
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
    assert!(fixture.telegram.texts(7)[0].contains("Restarting gateway"), "{:?}", fixture.telegram.texts(7));
    assert!(exists(&fixture, ".restart_last_processed.json") && exists(&fixture, ".restart_notify.json"));
    // The first poll delivers the same command again, which is ignored. A later command is executed.
    fixture.telegram.on("getUpdates").does(Fault::duplicate_updates());
    fixture.launch_with(&[("INVOCATION_ID", "x")]);
    assert!(fixture.wait_messages(7, 2)[1].contains("Gateway restarted successfully"));
    assert!(!exists(&fixture, ".restart_notify.json"));
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 3)[2], "echo: hello");
    assert_eq!(
        fixture.telegram.texts(7).iter().filter(|text| text.contains("Restarting gateway")).count(),
        1
    );
    fixture.telegram.push_text(7, 7, "/restart");
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(75), "{said}");
}

#[test]
fn unreachable_platform_degrades_gateway_until_it_returns() {
    let mut fixture = ProgramFixture::with_config("");
    fixture.telegram.down();
    fixture.launch();
    fixture.wait_state("degraded");
    fixture.telegram.up().expect("telegram comes back");
    fixture.wait_state("running");
}

#[test]
fn refused_credentials_fail_the_start() {
    let mut fixture = ProgramFixture::new();
    fixture.telegram.expect_token("999:other");
    fixture.launch();
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(78), "{said}");
    let state = fixture.state_file().expect("a state");
    assert_eq!(state["gateway_state"], "startup_failed", "{state}");
    assert!(state["exit_reason"].as_str().is_some_and(|reason| reason.contains("telegram")), "{state}");
    assert!(said.contains("error:") && said.contains("next:"), "{said}");
}

#[test]
fn second_signal_skips_turns_and_third_exits_at_once() {
    let mut fixture = ProgramFixture::with_config(LONG_DRAIN);
    fixture.start();
    let gate = start_gated_turn(&fixture, 7);
    let gateway = fixture.gateway.take().expect("running");
    gateway.signal("INT");
    assert!(fixture.wait_messages(7, 1)[0].contains("shutting down"));
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(routing_entry(&fixture, 7)["resume_reason"], "shutdown_timeout");

    gate.open();
    fixture.start();
    fixture.wait_messages(7, 2);
    fixture.wait_idle();
    fixture.telegram.on("sendMessage").always().does(Fault::Hang);
    let _gate = start_gated_turn(&fixture, 7);
    let gateway = fixture.gateway.take().expect("running");
    gateway.signal("INT");
    eventually("the stop begins", || is_stopping(&fixture));
    gateway.signal("INT");
    gateway.signal("INT");
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn operator_stop_overrides_unplanned_signal() {
    let mut fixture = ProgramFixture::with_config(LONG_DRAIN);
    fixture.start();
    let _gate = start_gated_turn(&fixture, 7);
    let gateway = fixture.gateway.take().expect("running");
    gateway.signal("TERM");
    assert!(fixture.wait_messages(7, 1)[0].contains("shutting down"));
    gateway.signal("INT");
    let (code, said) = gateway.wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fixture.state_file().expect("a state")["gateway_state"], "stopped");
}

const ONE_START: [(&str, &str); 2] =
    [("HERMES_GATEWAY_MAX_STARTS", "1"), ("HERMES_GATEWAY_START_WINDOW_S", "600")];

#[test]
fn respawn_limit_holds_suspects_and_answers_others() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&ONE_START);
    let gate = start_gated_turn(&fixture, 7);
    fixture.kill();
    gate.open();
    fixture.launch_with(&ONE_START);
    fixture.telegram.push_text(8, 8, "hello");
    assert_eq!(fixture.wait_messages(8, 1), ["echo: hello"]);
    let kept = fixture.wait_messages(7, 1);
    assert!(kept[0].contains("Your message is kept") && kept[0].contains("10 seconds"), "{kept:?}");
    assert_eq!(fixture.model.requests().len(), 2, "the suspect is not asked again yet");
    let said = fixture.kill();
    assert!(said.contains("started too often"), "{said}");
    assert!(said.contains("gateway.respawn_storm.max_starts: 0 disables this"), "{said}");
}

#[test]
fn respawn_limit_ignores_replacement() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&ONE_START);
    fixture.wait_state("running");
    let old = fixture.gateway.take().expect("running");
    let mut replace = fixture.command(&["run", "--replace"]);
    replace.envs(ONE_START).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    fixture.gateway = Some(GatewayProcess::new(replace.spawn().expect("starts")));
    fixture.wait_state("running");
    assert_eq!(old.wait().0, Some(0));
    let said = fixture.kill();
    assert!(!said.contains("started too often"), "{said}");
    std::fs::write(fixture.home.path().join("config.yaml"), "agent: {max_turns: many}\n").expect("written");
    fixture.launch_with(&ONE_START);
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(78), "{said}");
    assert_eq!(fixture.state_file().expect("a state")["gateway_state"], "startup_failed");
}

#[test]
fn notifies_service_manager_of_ready_alive_and_stopping() {
    let mut fixture = ProgramFixture::with_config(LONG_DRAIN);
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a timeout");
    let path = path.to_str().expect("text").to_owned();
    fixture.launch_with(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "200000")]);
    let mut received = Vec::new();
    let wait_message = |received: &mut Vec<String>, want: &str| {
        while !received.iter().any(|message| message.contains(want)) {
            let mut buffer = [0; 512];
            let length = manager
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("never {want}: {received:?}: {error}"));
            received.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    };
    wait_message(&mut received, "READY=1");
    wait_message(&mut received, "WATCHDOG=1");
    assert!(exists(&fixture, "state/gateway.heartbeat"));
    let gate = fixture.model.gate(Point::Before);
    for chat in [7, 8] {
        fixture.telegram.push_text(chat, chat, "hello");
    }
    assert!(gate.wait_for(2, SOON), "the model was never asked");
    fixture.gateway.as_ref().expect("running").signal("INT");
    wait_message(&mut received, "STOPPING=1");
    for chat in [7, 8] {
        assert!(fixture.wait_messages(chat, 1)[0].contains("shutting down"));
    }
    gate.open();
    wait_message(&mut received, "EXTEND_TIMEOUT_USEC=");
    let (code, said) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{said}");
}
