//! `status`, `doctor` and `links`, of running and stopped gateways.

use std::time::Duration;

use crate::support::{ProgramFixture, eventually, expect_success, stderr, stdout};
use crate::{LONG_DRAIN, start_busy};
use petasos_runtime::clock;

#[test]
fn status_shows_pending_restart() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    let gateway = fixture.gateway.take().expect("runs");
    gateway.signal("USR1");
    assert_eq!(gateway.wait().0, Some(75));
    assert_eq!(fixture.status()["ended"], "restart");
    assert!(expect_success(&fixture.run(&["status"])).contains("waiting to be restarted"));
}

#[test]
fn status_shows_kill_during_stop() {
    let (mut fixture, _gate) = start_busy(LONG_DRAIN);
    fixture.gateway.as_ref().expect("runs").signal("INT");
    eventually("stopping", || fixture.state_file().is_some_and(|state| state["drain"]["kind"] == "shutdown"));
    fixture.kill();
    assert_eq!(fixture.status()["ended"], "amid_stop");
    assert!(expect_success(&fixture.run(&["status"])).contains("killed while it was stopping"));
}

#[test]
fn status_shows_killed_gateway() {
    let (mut fixture, _gate) = start_busy("");
    fixture.wait_state("running");
    eventually("busy", || fixture.state_file().is_some_and(|state| state["active_agents"] == 1));
    fixture.kill();
    assert_eq!(fixture.state_file().expect("a state file")["gateway_state"], "running");
    let status = fixture.status();
    assert_eq!((&status["gateway_running"], &status["gateway_state"]), (&false.into(), &"stopped".into()));
    assert_eq!((&status["gateway_busy"], &status["gateway_drainable"]), (&false.into(), &false.into()));
    assert_eq!((&status["active_agents"], &status["ended"]), (&0.into(), &"killed".into()));
    let said = expect_success(&fixture.run(&["status"]));
    assert!(said.contains("is stopped") && said.contains("the gateway was killed"), "{said}");
}

#[test]
fn status_names_unplanned_signal() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    assert_eq!(fixture.terminate().0, Some(1));
    assert_eq!(fixture.state_file().expect("a state file")["gateway_state"], "running");
    let status = fixture.status();
    assert_eq!(
        (&status["gateway_state"], &status["gateway_exit_reason"]),
        (&"stopped".into(), &"SIGTERM".into())
    );
}

#[test]
fn doctor_reports_stale_markers_and_service() {
    let fixture = ProgramFixture::new();
    let marker = fixture.home.path().join(".gateway-takeover.json");
    std::fs::write(&marker, "{}").expect("written");
    let long_ago = clock::file_time() - Duration::from_secs(120);
    std::fs::File::options()
        .append(true)
        .open(&marker)
        .and_then(|it| it.set_modified(long_ago))
        .expect("aged");
    let said = stdout(&fixture.run(&["doctor"]));
    assert!(said.contains(".gateway-takeover.json is left over"), "{said}");
    assert!(said.contains("service      not installed"), "{said}");
}

#[test]
fn doctor_lists_active_and_skipped_hooks() {
    let fixture = ProgramFixture::new();
    assert!(!stdout(&fixture.run(&["doctor"])).contains("hooks"), "there are none");
    for (folder, yaml) in [
        ("greet", "name: greeter\nevents: [session:start, 'command:*']\ncommand: cat\n"),
        ("dream", "events: [agent:dream]\ncommand: cat\n"),
        ("mute", "events: [agent:end]\n"),
    ] {
        let folder = fixture.home.path().join("hooks").join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("HOOK.yaml"), yaml).expect("written");
    }
    let said = stdout(&fixture.run(&["doctor"]));
    let lines: Vec<&str> =
        said.lines().filter(|line| line.split_whitespace().nth(1) == Some("hooks")).collect();
    let [fine, dream, mute] = lines[..] else { panic!("{said}") };
    assert!(fine.contains("ok") && fine.ends_with("greeter (session:start, command:*)"), "{fine}");
    assert!(dream.contains("hooks/dream is skipped: there is no event \"agent:dream\""), "{dream}");
    assert!(mute.contains("hooks/mute is skipped: there is neither a file"), "{mute}");
    assert!([dream, mute].iter().all(|line| line.contains("warn")), "{said}");
}

#[test]
fn links_are_listed_paused_and_resumed() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    let listed = expect_success(&fixture.run(&["links"]));
    assert!(listed.contains("telegram") && listed.contains("connected"), "{listed}");
    assert!(expect_success(&fixture.run(&["links", "pause", "Telegram"])).contains("paused"));
    fixture.wait_state("degraded");
    fixture.telegram.push_text(7, 7, "hello");
    let polls = fixture.telegram.calls_of("getUpdates").len();
    let listed: serde_json::Value =
        serde_json::from_str(&expect_success(&fixture.run(&["links", "--json"]))).expect("JSON");
    assert_eq!(listed["links"][0]["state"], "paused", "{listed}");
    assert_eq!(fixture.telegram.calls_of("getUpdates").len(), polls, "polled while paused");
    expect_success(&fixture.run(&["links", "resume", "telegram"]));
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    let unknown = fixture.run(&["links", "retry", "icq"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("petasos links lists all platforms"), "{}", stderr(&unknown));
}
