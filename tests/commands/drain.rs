//! `drain` and `resume`.

use crate::support::{
    GatewayProcess, ProgramFixture, eventually, expect_failure, expect_json, expect_success, read_until,
    stderr, stdout,
};
use crate::{SESSION, spawn, start_busy};

#[test]
fn drain_without_gateway_applies_to_next_start() {
    let mut fixture = ProgramFixture::new();
    assert!(expect_success(&fixture.run(&["drain", "status"])).contains("No drain is requested"));
    assert!(expect_success(&fixture.run(&["resume"])).contains("No drain was requested"));
    let said = expect_success(&fixture.run(&["drain", "--wait", "--reason", "new disk"]));
    assert!(
        said.contains("No gateway is running") && said.contains("petasos resume ends the drain"),
        "{said}"
    );
    let status = fixture.run(&["status"]);
    expect_success(&status);
    assert!(
        stderr(&status).contains("new disk") && stderr(&status).contains("petasos resume"),
        "{}",
        stderr(&status)
    );
    let report = fixture.status();
    assert_eq!(
        (&report["gateway_running"], &report["drain_marker"]["reason"]),
        (&false.into(), &"new disk".into())
    );
    let report = expect_json(&fixture.run(&["drain", "status", "--json"]));
    assert_eq!(
        (&report["gateway_running"], &report["marker"]["standing"]),
        (&false.into(), &"active".into())
    );
    assert!(stdout(&fixture.run(&["doctor"])).contains("no new turns start: requested by petasos:"));
    let mut child = spawn(&fixture, &["run"]);
    let greeting = read_until(&mut child, "petasos chat");
    fixture.gateway = Some(GatewayProcess::new(child));
    let line = greeting.lines().find(|line| line.trim_start().starts_with("drain ")).unwrap_or_default();
    assert!(line.contains("requested by petasos:") && line.contains("new disk"), "{greeting}");
    assert!(line.contains("petasos resume ends the drain"), "{greeting}");
    fixture.wait_state("draining");
    assert_eq!(expect_json(&fixture.run(&["resume", "--json"]))["was_draining"], true);
    assert_eq!(expect_json(&fixture.run(&["resume", "--json"]))["was_draining"], false);
}

#[test]
fn drain_is_confirmed_shown_and_cancelled() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    let drain = ["drain", "--json", "--reason", "new disk", "--suppress-notification"];
    let output = fixture.command(&drain).env("USER", "ann").output().expect("runs");
    let report = expect_json(&output);
    assert_eq!((&report["confirmed"], &report["gateway_running"]), (&true.into(), &true.into()));
    assert_eq!(
        (&report["principal"], &report["suppress_notification"]),
        (&"petasos:ann".into(), &true.into())
    );
    let said = expect_success(&fixture.run(&["drain", "status"]));
    assert!(said.starts_with("draining for ") && said.contains(" s: no new turns start"), "{said}");
    assert!(said.contains("requested by petasos:ann just now: new disk"), "{said}");
    assert!(said.contains("no turn is running"), "{said}");
    let again = fixture.command(&["drain", "--json"]).env("USER", "ann").output().expect("runs");
    let again = expect_json(&again);
    assert_eq!((&again["reason"], &again["suppress_notification"]), (&"new disk".into(), &true.into()));
    let said = expect_success(&fixture.run(&["status"]));
    assert!(said.contains("is draining") && said.contains("requested by petasos:ann"), "{said}");
    let status = fixture.status();
    assert_eq!((&status["drain"]["kind"], &status["gateway_drainable"]), (&"external".into(), &false.into()));
    assert!(expect_success(&fixture.run(&["resume"])).contains("Turns start again; the gateway is running"));
    fixture.wait_state("running");
    assert_eq!(fixture.status()["gateway_drainable"], true);
}

#[test]
fn drain_waits_until_all_turns_finish() {
    let (fixture, gate) = start_busy("");
    let mut drain = spawn(&fixture, &["drain", "--wait"]);
    read_until(&mut drain, "draining: waiting for 1 turn running");
    read_until(&mut drain, &format!("{SESSION}: thinking for"));
    let shown = expect_success(&fixture.run(&["drain", "status"]));
    assert!(
        shown.contains(SESSION) && shown.contains("thinking") && shown.contains("until it finishes"),
        "{shown}"
    );
    drop(gate);
    let said = expect_success(&drain.wait_with_output().expect("ends"));
    assert!(said.contains("Drained: no turn is running"), "{said}");
    assert_eq!(fixture.status()["gateway_state"], "draining");
    let again = expect_json(&fixture.run(&["drain", "--wait", "--timeout", "15", "--json"]));
    assert_eq!((&again["drained"], &again["active_agents"]), (&true.into(), &0.into()));
}

#[test]
fn drain_timeout_fails_and_keeps_the_drain() {
    let (fixture, _gate) = start_busy("");
    let said = expect_failure(&fixture.run(&["drain", "--wait", "--timeout", "0.1"]), 1);
    assert!(said.contains("1 turn running") && said.contains("the drain stays in effect"), "{said}");
    assert!(said.contains("petasos resume ends the drain"), "{said}");
    assert_eq!(fixture.status()["gateway_state"], "draining");
    assert_eq!(fixture.run(&["drain", "--timeout", "5"]).status.code(), Some(2), "only with --wait");
}

#[test]
fn waiting_drain_does_not_restore_a_cancelled_one() {
    let (fixture, _gate) = start_busy("gateway: {drain_max_age_seconds: 2}\n");
    let mut drain = spawn(&fixture, &["drain", "--wait"]);
    read_until(&mut drain, SESSION);
    let marker = fixture.home.path().join(".drain_request.json");
    let first = std::fs::read_to_string(&marker).expect("a marker");
    eventually("renewed", || std::fs::read_to_string(&marker).is_ok_and(|now| now != first));
    expect_success(&fixture.run(&["resume"]));
    let said = expect_failure(&drain.wait_with_output().expect("ends"), 1);
    assert!(said.contains("the drain was cancelled"), "{said}");
    assert!(!marker.exists());
}

#[test]
fn drain_skips_or_extends_one_session() {
    let (fixture, _gate) = start_busy("");
    let drain = spawn(&fixture, &["drain", "--wait"]);
    let extended = expect_json(&fixture.run(&["drain", "extend", SESSION, "--by", "30", "--json"]));
    assert_eq!(extended["session"], SESSION);
    assert_eq!(fixture.status()["holders"][0]["until"], extended["until"]);
    assert!(expect_success(&fixture.run(&["drain", "extend", "telegram"])).contains("A stop waits at least"));
    assert!(expect_success(&fixture.run(&["drain", "status"])).contains("until it finishes"));
    let said = expect_failure(&fixture.run(&["drain", "skip", ""]), 1);
    assert!(said.contains("session is empty") && said.contains("next: petasos drain status"), "{said}");
    let said = expect_failure(&fixture.run(&["drain", "skip", "unknown"]), 1);
    assert!(said.contains("petasos drain status lists running turns"), "{said}");
    assert!(
        expect_success(&fixture.run(&["drain", "skip", "dm:7"])).contains("The drain no longer waits for")
    );
    let said = expect_success(&drain.wait_with_output().expect("ends"));
    assert!(said.contains("Drained, except for 1 turn running"), "{said}");
    assert!(expect_success(&fixture.run(&["drain", "status"])).contains("skipped"));
    assert!(expect_success(&fixture.run(&["drain"])).contains("1 turn running, skipped"));
    assert_eq!(fixture.run(&["drain", "extend", "dm:7", "--by", "0"]).status.code(), Some(2));
}
