//! `drain` and `resume`.

use crate::support::{Bench, Gateway, eventually, failed, fine, json, read_until, stderr, stdout};
use crate::{SESSION, busy, spawn};

#[test]
fn without_a_gateway_a_drain_is_kept_for_the_next_one() {
    let mut bench = Bench::new();
    assert!(fine(&bench.run(&["drain", "status"])).contains("nobody asks for a drain"));
    assert!(fine(&bench.run(&["resume"])).contains("nobody had asked for a drain"));
    let said = fine(&bench.run(&["drain", "--wait", "--reason", "new disk"]));
    assert!(said.contains("no gateway runs") && said.contains("petasos resume ends it"), "{said}");
    let status = bench.run(&["status"]);
    fine(&status);
    assert!(
        stderr(&status).contains("new disk") && stderr(&status).contains("petasos resume"),
        "{}",
        stderr(&status)
    );
    let told = bench.status();
    assert_eq!(
        (&told["gateway_running"], &told["drain_marker"]["reason"]),
        (&false.into(), &"new disk".into())
    );
    let told = json(&bench.run(&["drain", "status", "--json"]));
    assert_eq!((&told["gateway_running"], &told["marker"]["standing"]), (&false.into(), &"active".into()));
    assert!(stdout(&bench.run(&["doctor"])).contains("no new turns start: asked for by petasos:"));
    let mut child = spawn(&bench, &["run"]);
    let greeting = read_until(&mut child, "petasos chat");
    bench.gateway = Some(Gateway::of(child));
    let line = greeting.lines().find(|line| line.trim_start().starts_with("drain ")).unwrap_or_default();
    assert!(line.contains("asked for by petasos:") && line.contains("new disk"), "{greeting}");
    assert!(line.contains("petasos resume ends it"), "{greeting}");
    bench.await_state("draining");
    assert_eq!(json(&bench.run(&["resume", "--json"]))["was_draining"], true);
    assert_eq!(json(&bench.run(&["resume", "--json"]))["was_draining"], false);
}

#[test]
fn a_drain_is_confirmed_shown_and_taken_back() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    let drain = ["drain", "--json", "--reason", "new disk", "--suppress-notification"];
    let output = bench.command(&drain).env("USER", "ann").output().expect("runs");
    let told = json(&output);
    assert_eq!((&told["confirmed"], &told["gateway_running"]), (&true.into(), &true.into()));
    assert_eq!((&told["principal"], &told["suppress_notification"]), (&"petasos:ann".into(), &true.into()));
    let said = fine(&bench.run(&["drain", "status"]));
    assert!(said.starts_with("draining for ") && said.contains(" s: no new turns start"), "{said}");
    assert!(said.contains("asked for by petasos:ann just now: new disk"), "{said}");
    assert!(said.contains("nobody is at work"), "{said}");
    let again = bench.command(&["drain", "--json"]).env("USER", "ann").output().expect("runs");
    let again = json(&again);
    assert_eq!((&again["reason"], &again["suppress_notification"]), (&"new disk".into(), &true.into()));
    let said = fine(&bench.run(&["status"]));
    assert!(said.contains("is draining") && said.contains("asked for by petasos:ann"), "{said}");
    let status = bench.status();
    assert_eq!((&status["drain"]["kind"], &status["gateway_drainable"]), (&"external".into(), &false.into()));
    assert!(fine(&bench.run(&["resume"])).contains("turns start again: the gateway is running"));
    bench.await_state("running");
    assert_eq!(bench.status()["gateway_drainable"], true);
}

#[test]
fn drain_waits_until_nobody_is_at_work() {
    let (bench, gate) = busy("");
    let mut drain = spawn(&bench, &["drain", "--wait"]);
    read_until(&mut drain, "draining: waiting for 1 session at work");
    read_until(&mut drain, &format!("{SESSION}: thinking for"));
    let shown = fine(&bench.run(&["drain", "status"]));
    assert!(
        shown.contains(SESSION) && shown.contains("thinking") && shown.contains("until it is done"),
        "{shown}"
    );
    drop(gate);
    let said = fine(&drain.wait_with_output().expect("ends"));
    assert!(said.contains("drained: nobody is at work"), "{said}");
    assert_eq!(bench.status()["gateway_state"], "draining");
    let again = json(&bench.run(&["drain", "--wait", "--timeout", "15", "--json"]));
    assert_eq!((&again["drained"], &again["active_agents"]), (&true.into(), &0.into()));
}

#[test]
fn a_drain_that_takes_too_long_is_a_failure_and_stays() {
    let (bench, _gate) = busy("");
    let said = failed(&bench.run(&["drain", "--wait", "--timeout", "0.1"]), 1);
    assert!(said.contains("still 1 session at work") && said.contains("the drain stays"), "{said}");
    assert!(said.contains("petasos resume ends it"), "{said}");
    assert_eq!(bench.status()["gateway_state"], "draining");
    assert_eq!(bench.run(&["drain", "--timeout", "5"]).status.code(), Some(2), "only with --wait");
}

#[test]
fn a_drain_that_somebody_takes_back_is_not_brought_back_by_those_who_wait() {
    let (bench, _gate) = busy("gateway: {drain_max_age_seconds: 2}\n");
    let mut drain = spawn(&bench, &["drain", "--wait"]);
    read_until(&mut drain, SESSION);
    let marker = bench.home.path().join(".drain_request.json");
    let first = std::fs::read_to_string(&marker).expect("a marker");
    eventually("renewed", || std::fs::read_to_string(&marker).is_ok_and(|now| now != first));
    fine(&bench.run(&["resume"]));
    let said = failed(&drain.wait_with_output().expect("ends"), 1);
    assert!(said.contains("taken back"), "{said}");
    assert!(!marker.exists());
}

#[test]
fn a_session_can_be_given_up_or_given_more_time() {
    let (bench, _gate) = busy("");
    let drain = spawn(&bench, &["drain", "--wait"]);
    let extended = json(&bench.run(&["drain", "extend", SESSION, "--by", "30", "--json"]));
    assert_eq!(extended["session"], SESSION);
    assert_eq!(bench.status()["holders"][0]["until"], extended["until"]);
    assert!(fine(&bench.run(&["drain", "extend", "telegram"])).contains("a stop waits for"));
    assert!(fine(&bench.run(&["drain", "status"])).contains("until it is done"));
    let said = failed(&bench.run(&["drain", "skip", ""]), 1);
    assert!(said.contains("session is empty") && said.contains("next: petasos drain status"), "{said}");
    let said = failed(&bench.run(&["drain", "skip", "nobody"]), 1);
    assert!(said.contains("petasos drain status lists them"), "{said}");
    assert!(fine(&bench.run(&["drain", "skip", "dm:7"])).contains("is not waited for any more"));
    let said = fine(&drain.wait_with_output().expect("ends"));
    assert!(said.contains("drained, except for 1 session at work"), "{said}");
    assert!(fine(&bench.run(&["drain", "status"])).contains("not waited for"));
    assert!(fine(&bench.run(&["drain"])).contains("1 session at work, not waited for"));
    assert_eq!(bench.run(&["drain", "extend", "dm:7", "--by", "0"]).status.code(), Some(2));
}
