//! `stop` and `restart`.

use crate::support::{
    GatewayProcess, ProgramFixture, expect_failure, expect_json, expect_success, read_until, stderr,
};
use crate::{DetachedGateway, LONG_DRAIN, SESSION, SHORT_DRAIN, pid_of, spawn, start_busy, wait_up};

#[test]
fn stop_waits_for_exit_and_leaves_clean_home() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let pid = fixture.gateway.as_ref().expect("runs").pid();
    assert_eq!(expect_success(&fixture.run(&["stop"])), format!("Stopped (pid {pid})\n"));
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(0));
    let state = fixture.state_file().expect("a state file");
    assert_eq!((&state["gateway_state"], &state["active_agents"]), (&"stopped".into(), &0.into()));
    let there = |name: &str| fixture.home.path().join(name).exists();
    assert!(there("gateway.lock") && !there("gateway.pid") && !there(".gateway-planned-stop.json"));
    assert!(expect_success(&fixture.run(&["status"])).contains("is stopped"));
    assert!(expect_failure(&fixture.run(&["stop"]), 1).contains("no gateway is running"));
}

#[test]
fn stop_shows_running_turns_and_waits_for_them() {
    let (mut fixture, gate) = start_busy(LONG_DRAIN);
    let mut stop = spawn(&fixture, &["stop"]);
    read_until(&mut stop, "stopping: waiting for 1 turn running");
    read_until(&mut stop, &format!("{SESSION}: thinking for"));
    let status = fixture.status();
    assert_eq!(
        (&status["drain"]["kind"], &status["holders"][0]["key"]),
        (&"shutdown".into(), &SESSION.into())
    );
    let text = expect_success(&fixture.run(&["status"]));
    assert!(text.contains("is stopping") && text.contains("stopping for") && text.contains("left"), "{text}");
    let text = expect_success(&fixture.run(&["drain", "status"]));
    assert!(text.contains("stopping for ") && !text.contains("since"), "{text}");
    let said = expect_failure(&fixture.run(&["restart"]), 1);
    assert!(said.contains("already stopping") && said.contains("next: petasos stop"), "{said}");
    let said = expect_success(&fixture.run(&["drain"]));
    assert!(
        said.contains("The gateway is stopping; the marker stays, and the next gateway starts drained"),
        "{said}"
    );
    assert_eq!(expect_json(&fixture.run(&["drain", "--json"]))["leaving"], true);
    expect_success(&fixture.run(&["resume"]));
    drop(gate);
    let said = expect_success(&stop.wait_with_output().expect("ends"));
    assert!(said.contains("Stopped (pid") && !said.contains("interrupted"), "{said}");
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(0));
    assert!(fixture.telegram.texts(7).contains(&"echo: hello".to_owned()), "the answer is missing");
}

#[test]
fn stop_now_does_not_wait_for_turns() {
    let (mut fixture, _gate) = start_busy(LONG_DRAIN);
    let report = expect_json(&fixture.run(&["stop", "--now", "--json"]));
    assert_eq!((&report["stopped"], &report["interrupted"]), (&true.into(), &1.into()));
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(0));
    let state = fixture.state_file().expect("a state file");
    assert_eq!(state["gateway_state"], "stopped");
}

#[test]
fn stop_and_restart_count_interrupted_turns() {
    let (fixture, _gate) = start_busy(SHORT_DRAIN);
    let report = expect_json(&fixture.run(&["restart", "--json"]));
    let _new = DetachedGateway(pid_of(&report));
    assert_eq!(report["interrupted"], 1, "{report}");
    let said = expect_success(&fixture.run(&["stop"]));
    assert!(said.contains("1 turn was interrupted; the next start resumes it"), "{said}");
}

#[test]
fn ctrl_c_ends_waiting_but_not_the_stop() {
    let (mut fixture, gate) = start_busy(LONG_DRAIN);
    let mut stop = spawn(&fixture, &["stop"]);
    read_until(&mut stop, SESSION);
    let stop = GatewayProcess::new(stop);
    stop.signal("INT");
    let (code, said) = stop.wait();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("the gateway continues to stop"), "{said}");
    drop(gate);
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(0));
}

#[test]
fn stop_warns_about_restarting_supervisor() {
    for (env, warned) in [(&[("INVOCATION_ID", "0123456789abcdef")][..], true), (&[], false)] {
        let mut fixture = ProgramFixture::new();
        fixture.launch_with(env);
        wait_up(&fixture);
        let stopped = fixture.run(&["stop"]);
        expect_success(&stopped);
        assert_eq!(stderr(&stopped).contains("may start it again"), warned, "{}", stderr(&stopped));
    }
}

#[test]
fn agent_tools_cannot_stop_or_restart_gateway() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    for command in ["stop", "restart"] {
        let output = fixture.command(&[command]).env("_HERMES_GATEWAY", "1").output().expect("runs");
        assert!(expect_failure(&output, 1).contains("started by the gateway"), "{command}");
    }
    assert_eq!(fixture.status()["gateway_running"], true);
}

#[test]
fn restart_starts_a_new_process() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let old = fixture.gateway.as_ref().expect("runs").pid();
    let report = expect_json(&fixture.run(&["restart", "--json"]));
    let new = DetachedGateway(pid_of(&report));
    assert!(new.0 != old && report["old_pid"] == old && report["restarted"] == true, "{report}");
    assert_eq!(report["gateway_state"], fixture.status()["gateway_state"], "{report}");
    let stopped = expect_json(&fixture.run(&["stop", "--json"]));
    assert_eq!((pid_of(&stopped), &stopped["interrupted"]), (new.0, &0.into()));
    let (code, said) = fixture.gateway.take().expect("ran").wait();
    assert_eq!(code, Some(0), "{said}");
    let greeting = format!("Petasos now runs in the background (pid {}); petasos stop stops it", new.0);
    assert!(said.contains(&greeting), "{said}");
    assert_eq!(said.matches("petasos chat").count(), 1, "the second process greets, too: {said}");
}

#[test]
fn restart_leaves_start_to_supervisor() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&[("INVOCATION_ID", "0123456789abcdef")]);
    wait_up(&fixture);
    let restart = spawn(&fixture, &["restart"]);
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(75));
    fixture.start();
    let pid = fixture.gateway.as_ref().expect("runs").pid();
    let said = expect_success(&restart.wait_with_output().expect("ends"));
    assert!(said.contains(&format!("Restarted (pid {pid})")), "{said}");
}

#[test]
fn accepts_declared_external_supervisor() {
    let mut fixture = ProgramFixture::new();
    let child = spawn(&fixture, &["gateway", "run", "--external-supervisor"]);
    fixture.gateway = Some(GatewayProcess::new(child));
    wait_up(&fixture);
    assert_eq!(expect_json(&fixture.run(&["restart", "--no-wait", "--json"]))["restarting"], true);
    assert_eq!(fixture.gateway.take().expect("ran").wait().0, Some(75));
}

#[test]
fn restart_reports_broken_configuration() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let config = fixture.home.path().join("config.yaml");
    std::fs::write(&config, "agent: {max_turns: many}\n").expect("written");
    let said = expect_failure(&fixture.run(&["restart"]), 1);
    assert!(said.contains("the new process could not start") && said.contains("config check"), "{said}");
    let status = fixture.status();
    assert_eq!(
        (&status["gateway_state"], &status["ended"]),
        (&"startup_failed".into(), &"unstartable".into())
    );
    let text = expect_success(&fixture.run(&["status"]));
    assert!(text.contains("could not start\n    the configuration cannot be used\n"), "{text}");
}
