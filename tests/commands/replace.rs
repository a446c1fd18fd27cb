//! Two gateways and one home, one bot or one process: `run --replace`.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Bench, Gateway, SOON, eventually, failed, fine};
use crate::{HASTY, busy, pid_in, spawn, up};

#[test]
fn a_second_gateway_is_refused_and_the_first_goes_on() {
    let mut bench = Bench::new();
    bench.start();
    let pid = bench.gateway.as_ref().expect("runs").pid();
    for args in [&["run"][..], &["gateway", "run"], &["run", "--force", "--no-supervise"]] {
        let said = failed(&bench.run(args), 1);
        assert!(said.contains(&format!("(pid {pid})")) && said.contains("petasos run --replace"), "{said}");
    }
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    assert_eq!(bench.status()["pid"], pid);
}

/// Puts a gateway into the place of the one that runs. Gives back the old one.
fn replace(bench: &mut Bench) -> Gateway {
    let old = bench.gateway.take().expect("runs");
    bench.gateway = Some(Gateway::of(spawn(bench, &["run", "--replace"])));
    let new = bench.gateway.as_ref().expect("runs").pid();
    eventually("replaced", || bench.status()["pid"] == new);
    old
}

#[test]
fn an_idle_gateway_is_replaced() {
    let mut bench = Bench::new();
    bench.start();
    let old = replace(&mut bench);
    assert_eq!(old.wait().0, Some(0));
    let record = std::fs::read_to_string(bench.home.path().join("gateway.pid")).expect("a pid file");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(pid_in(&record), bench.gateway.as_ref().expect("runs").pid());
    assert!(!bench.home.path().join(".gateway-takeover.json").exists());
    bench.telegram.push_text(7, 7, "hello");
    assert!(bench.wait_messages(7, 1).contains(&"echo: hello".to_owned()));
}

#[test]
fn a_busy_gateway_is_replaced_after_its_drain_and_its_turn_is_resumed() {
    let (mut bench, gate) = busy(HASTY);
    let old = replace(&mut bench);
    let (code, said) = old.wait();
    assert_eq!(code, Some(0), "{said}");
    drop(gate);
    let answered = bench
        .telegram
        .wait_until(SOON, |world| world.texts(7).iter().any(|text| text == "echo: hello").then_some(()));
    assert!(answered.is_some(), "{:?}", bench.telegram.texts(7));
}

#[test]
fn with_nobody_to_replace_it_is_an_ordinary_start() {
    let mut bench = Bench::new();
    bench.gateway = Some(Gateway::of(spawn(&bench, &["run", "--replace"])));
    up(&bench);
}

#[test]
fn a_gateway_is_not_replaced_by_one_that_could_not_start() {
    let mut bench = Bench::new();
    bench.start();
    let pid = bench.gateway.as_ref().expect("runs").pid();
    let config = bench.home.path().join("config.yaml");
    std::fs::write(&config, "agent: {max_turns: many}\n").expect("written");
    assert!(failed(&bench.run(&["run", "--replace"]), 78).contains("agent.max_turns"));
    let state = bench.status();
    assert_eq!((&state["pid"], &state["gateway_running"]), (&pid.into(), &true.into()));
    assert_eq!(bench.state_file().expect("a state file")["pid"], pid);
}

/// Whoever holds the home without being a gateway is not signalled.
#[test]
fn a_process_that_is_no_gateway_is_not_replaced() {
    let bench = Bench::new();
    let path = bench.home.path().join("gateway.lock");
    let record = format!("{{\"pid\": {}}}", std::process::id());
    std::fs::write(&path, record).expect("written");
    let file = std::fs::File::open(&path).expect("opened");
    file.try_lock().expect("locked");
    let said = failed(&bench.run(&["run", "--replace"]), 1);
    assert!(said.contains("is no gateway"), "{said}");
    assert!(!bench.home.path().join(".gateway-takeover.json").exists());
}

#[test]
fn a_bot_belongs_to_one_gateway_of_the_machine() {
    let locks = TempDir::new().expect("a directory");
    let env = [("HERMES_GATEWAY_LOCK_DIR", locks.path().to_str().expect("a path"))];
    let files = || std::fs::read_dir(locks.path()).expect("a directory").flatten();
    let held = || files().filter(|entry| entry.path().extension().is_some_and(|it| it == "lock")).count();
    let (mut one, mut two) = (Bench::new(), Bench::new());
    one.launch_with(&env);
    up(&one);
    assert_eq!(held(), 1);
    let pid = one.gateway.as_ref().expect("runs").pid();
    two.launch_with(&env);
    two.await_state("degraded");
    let link = two.status()["links"][0].clone();
    assert_eq!((&link["code"], &link["class"]), (&"telegram-bot-token_lock".into(), &"passing".into()));
    let why = link["reason"].as_str().expect("why");
    assert!(why.contains("telegram is in use") && why.contains(&format!("pid {pid}")), "{why}");
    assert!(why.contains(&one.home.path().display().to_string()), "{why}");
    assert!(two.telegram.calls_of("getMe").is_empty(), "it leaves the bot alone");
    // Replaced by another of the same home, the lock goes with the home.
    let old = one.gateway.take().expect("runs");
    let child =
        one.command(&["run", "--replace"]).envs(env).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    one.gateway = Some(Gateway::of(child.expect("starts")));
    let pid = one.gateway.as_ref().expect("runs").pid();
    eventually("replaced", || one.status()["pid"] == pid);
    assert_eq!(old.wait().0, Some(0));
    eventually("held again", || held() == 1);
    fine(&two.run(&["links", "retry", "telegram"]));
    let named = || two.status()["links"][0]["reason"].as_str().unwrap_or_default().to_owned();
    eventually("looked again", || named().contains(&format!("pid {pid}")));
    // A dead one has nothing.
    one.kill();
    fine(&two.run(&["links", "retry", "telegram"]));
    two.await_state("running");
    fine(&two.run(&["stop"]));
    assert_eq!(held(), 0);
}
