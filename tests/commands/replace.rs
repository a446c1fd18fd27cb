//! `run --replace`, and two gateways with the same home or bot.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{GatewayProcess, ProgramFixture, SOON, eventually, expect_failure, expect_success};
use crate::{SHORT_DRAIN, pid_of, spawn, start_busy, wait_up};

#[test]
fn second_gateway_names_running_pid_and_replace() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let pid = fixture.gateway.as_ref().expect("runs").pid();
    for args in [&["run"][..], &["gateway", "run"], &["run", "--force", "--no-supervise"]] {
        let said = expect_failure(&fixture.run(args), 1);
        assert!(said.contains(&format!("(pid {pid})")) && said.contains("petasos run --replace"), "{said}");
    }
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    assert_eq!(fixture.status()["pid"], pid);
}

/// Replaces the running gateway. Returns the old process.
fn replace(fixture: &mut ProgramFixture) -> GatewayProcess {
    let old = fixture.gateway.take().expect("runs");
    fixture.gateway = Some(GatewayProcess::new(spawn(fixture, &["run", "--replace"])));
    let new = fixture.gateway.as_ref().expect("runs").pid();
    eventually("replaced", || fixture.status()["pid"] == new);
    old
}

#[test]
fn replaces_idle_gateway() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let old = replace(&mut fixture);
    assert_eq!(old.wait().0, Some(0));
    let record = std::fs::read_to_string(fixture.home.path().join("gateway.pid")).expect("a pid file");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(pid_of(&record), fixture.gateway.as_ref().expect("runs").pid());
    assert!(!fixture.home.path().join(".gateway-takeover.json").exists());
    fixture.telegram.push_text(7, 7, "hello");
    assert!(fixture.wait_messages(7, 1).contains(&"echo: hello".to_owned()));
}

#[test]
fn replaces_busy_gateway_after_drain_and_resumes_turn() {
    let (mut fixture, gate) = start_busy(SHORT_DRAIN);
    let old = replace(&mut fixture);
    let (code, said) = old.wait();
    assert_eq!(code, Some(0), "{said}");
    drop(gate);
    let answered = fixture
        .telegram
        .wait_until(SOON, |state| state.texts(7).iter().any(|text| text == "echo: hello").then_some(()));
    assert!(answered.is_some(), "{:?}", fixture.telegram.texts(7));
}

#[test]
fn replace_without_running_gateway_starts_normally() {
    let mut fixture = ProgramFixture::new();
    fixture.gateway = Some(GatewayProcess::new(spawn(&fixture, &["run", "--replace"])));
    wait_up(&fixture);
}

#[test]
fn invalid_configuration_prevents_replacement() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let pid = fixture.gateway.as_ref().expect("runs").pid();
    let config = fixture.home.path().join("config.yaml");
    std::fs::write(&config, "agent: {max_turns: many}\n").expect("written");
    assert!(expect_failure(&fixture.run(&["run", "--replace"]), 78).contains("agent.max_turns"));
    let state = fixture.status();
    assert_eq!((&state["pid"], &state["gateway_running"]), (&pid.into(), &true.into()));
    assert_eq!(fixture.state_file().expect("a state file")["pid"], pid);
}

/// The test process holds the lock and must not get a signal.
#[test]
fn refuses_to_replace_other_process() {
    let fixture = ProgramFixture::new();
    let path = fixture.home.path().join("gateway.lock");
    let record = format!("{{\"pid\": {}}}", std::process::id());
    std::fs::write(&path, record).expect("written");
    let file = std::fs::File::open(&path).expect("opened");
    file.try_lock().expect("locked");
    let said = expect_failure(&fixture.run(&["run", "--replace"]), 1);
    assert!(said.contains("is not a gateway"), "{said}");
    assert!(!fixture.home.path().join(".gateway-takeover.json").exists());
}

#[test]
fn bot_lock_allows_one_gateway_per_machine() {
    let locks = TempDir::new().expect("a directory");
    let env = [("HERMES_GATEWAY_LOCK_DIR", locks.path().to_str().expect("a path"))];
    let files = || std::fs::read_dir(locks.path()).expect("a directory").flatten();
    let held = || files().filter(|entry| entry.path().extension().is_some_and(|it| it == "lock")).count();
    let mut one = ProgramFixture::new();
    let mut two = ProgramFixture::new();
    one.launch_with(&env);
    wait_up(&one);
    assert_eq!(held(), 1);
    let pid = one.gateway.as_ref().expect("runs").pid();
    two.launch_with(&env);
    two.wait_state("degraded");
    let link = two.status()["links"][0].clone();
    assert_eq!((&link["code"], &link["class"]), (&"telegram-bot-token_lock".into(), &"passing".into()));
    let why = link["reason"].as_str().expect("why");
    assert!(why.contains("telegram is in use") && why.contains(&format!("pid {pid}")), "{why}");
    assert!(why.contains(&one.home.path().display().to_string()), "{why}");
    assert!(two.telegram.calls_of("getMe").is_empty(), "the second gateway used the bot");
    // The replacement in the same home takes over the lock.
    let old = one.gateway.take().expect("runs");
    let child =
        one.command(&["run", "--replace"]).envs(env).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    one.gateway = Some(GatewayProcess::new(child.expect("starts")));
    let pid = one.gateway.as_ref().expect("runs").pid();
    eventually("replaced", || one.status()["pid"] == pid);
    assert_eq!(old.wait().0, Some(0));
    eventually("held again", || held() == 1);
    expect_success(&two.run(&["links", "retry", "telegram"]));
    let named = || two.status()["links"][0]["reason"].as_str().unwrap_or_default().to_owned();
    eventually("the new pid is reported", || named().contains(&format!("pid {pid}")));
    // A dead process holds no lock.
    one.kill();
    expect_success(&two.run(&["links", "retry", "telegram"]));
    two.wait_state("running");
    expect_success(&two.run(&["stop"]));
    assert_eq!(held(), 0);
}
