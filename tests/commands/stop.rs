//! `stop` and `restart`.

use crate::support::{Bench, Gateway, failed, fine, json, read_until, stderr};
use crate::{HASTY, PATIENT, SESSION, Stranger, busy, pid_in, spawn, up};

#[test]
fn stop_waits_until_the_home_is_free_and_leaves_it_as_it_should_be() {
    let mut bench = Bench::new();
    bench.start();
    let pid = bench.gateway.as_ref().expect("runs").pid();
    assert_eq!(fine(&bench.run(&["stop"])), format!("stopped (pid {pid})\n"));
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(0));
    let state = bench.state_file().expect("a state file");
    assert_eq!((&state["gateway_state"], &state["active_agents"]), (&"stopped".into(), &0.into()));
    let there = |name: &str| bench.home.path().join(name).exists();
    assert!(there("gateway.lock") && !there("gateway.pid") && !there(".gateway-planned-stop.json"));
    assert!(fine(&bench.run(&["status"])).contains("is stopped"));
    assert!(failed(&bench.run(&["stop"]), 1).contains("no gateway is running"));
}

#[test]
fn stop_shows_who_is_at_work_and_lets_them_finish() {
    let (mut bench, gate) = busy(PATIENT);
    let mut stop = spawn(&bench, &["stop"]);
    read_until(&mut stop, "stopping: waiting for 1 session at work");
    read_until(&mut stop, &format!("{SESSION}: thinking for"));
    let status = bench.status();
    assert_eq!(
        (&status["drain"]["kind"], &status["holders"][0]["key"]),
        (&"shutdown".into(), &SESSION.into())
    );
    let text = fine(&bench.run(&["status"]));
    assert!(text.contains("is stopping") && text.contains("stopping for") && text.contains("left"), "{text}");
    let text = fine(&bench.run(&["drain", "status"]));
    assert!(text.contains("stopping for ") && !text.contains("since"), "{text}");
    let said = failed(&bench.run(&["restart"]), 1);
    assert!(said.contains("a stop comes first") && said.contains("next: petasos stop"), "{said}");
    let said = fine(&bench.run(&["drain"]));
    assert!(
        said.contains("the gateway is stopping; the marker stays, and the next one starts drained"),
        "{said}"
    );
    assert_eq!(json(&bench.run(&["drain", "--json"]))["leaving"], true);
    fine(&bench.run(&["resume"]));
    drop(gate);
    let said = fine(&stop.wait_with_output().expect("ends"));
    assert!(said.contains("stopped (pid") && !said.contains("interrupted"), "{said}");
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(0));
    assert!(bench.telegram.texts(7).contains(&"echo: hello".to_owned()), "the answer went out");
}

#[test]
fn stop_now_does_not_wait_for_turns() {
    let (mut bench, _gate) = busy(PATIENT);
    let told = json(&bench.run(&["stop", "--now", "--json"]));
    assert_eq!((&told["stopped"], &told["interrupted"]), (&true.into(), &1.into()));
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(0));
    let state = bench.state_file().expect("a state file");
    assert_eq!(state["gateway_state"], "stopped");
}

#[test]
fn stop_and_restart_say_how_many_turns_they_have_cost() {
    let (bench, _gate) = busy(HASTY);
    let told = json(&bench.run(&["restart", "--json"]));
    let _new = Stranger(pid_in(&told));
    assert_eq!(told["interrupted"], 1, "{told}");
    let said = fine(&bench.run(&["stop"]));
    assert!(said.contains("1 turn was interrupted; the next start goes on with it"), "{said}");
}

#[test]
fn an_interrupt_ends_the_watching_and_not_the_stop() {
    let (mut bench, gate) = busy(PATIENT);
    let mut stop = spawn(&bench, &["stop"]);
    read_until(&mut stop, SESSION);
    let stop = Gateway::of(stop);
    stop.signal("INT");
    let (code, said) = stop.wait();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("the gateway goes on stopping"), "{said}");
    drop(gate);
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(0));
}

#[test]
fn stop_tells_of_a_supervisor_that_may_undo_it() {
    for (env, told) in [(&[("INVOCATION_ID", "0123456789abcdef")][..], true), (&[], false)] {
        let mut bench = Bench::new();
        bench.launch_with(env);
        up(&bench);
        let stopped = bench.run(&["stop"]);
        fine(&stopped);
        assert_eq!(stderr(&stopped).contains("may start it again"), told, "{}", stderr(&stopped));
    }
}

#[test]
fn the_gateways_own_tools_cannot_stop_or_restart_it() {
    let mut bench = Bench::new();
    bench.start();
    for command in ["stop", "restart"] {
        let output = bench.command(&[command]).env("_HERMES_GATEWAY", "1").output().expect("runs");
        assert!(failed(&output, 1).contains("by the gateway itself"), "{command}");
    }
    assert_eq!(bench.status()["gateway_running"], true);
}

#[test]
fn restart_brings_another_process() {
    let mut bench = Bench::new();
    bench.start();
    let old = bench.gateway.as_ref().expect("runs").pid();
    let told = json(&bench.run(&["restart", "--json"]));
    let new = Stranger(pid_in(&told));
    assert!(new.0 != old && told["old_pid"] == old && told["restarted"] == true, "{told}");
    assert_eq!(told["gateway_state"], bench.status()["gateway_state"], "{told}");
    let stopped = json(&bench.run(&["stop", "--json"]));
    assert_eq!((pid_in(&stopped), &stopped["interrupted"]), (new.0, &0.into()));
    let (code, said) = bench.gateway.take().expect("ran").wait();
    assert_eq!(code, Some(0), "{said}");
    let greeting = format!("Petasos runs in the background now (pid {}); petasos stop ends it", new.0);
    assert!(said.contains(&greeting), "{said}");
    assert_eq!(said.matches("petasos chat").count(), 1, "only the first one greets: {said}");
}

#[test]
fn restart_leaves_the_start_to_a_supervisor_that_is_there() {
    let mut bench = Bench::new();
    bench.launch_with(&[("INVOCATION_ID", "0123456789abcdef")]);
    up(&bench);
    let restart = spawn(&bench, &["restart"]);
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(75));
    bench.start();
    let pid = bench.gateway.as_ref().expect("runs").pid();
    let said = fine(&restart.wait_with_output().expect("ends"));
    assert!(said.contains(&format!("restarted (pid {pid})")), "{said}");
}

#[test]
fn a_supervisor_that_nobody_can_see_can_be_told_of() {
    let mut bench = Bench::new();
    let child = spawn(&bench, &["gateway", "run", "--external-supervisor"]);
    bench.gateway = Some(Gateway::of(child));
    up(&bench);
    assert_eq!(json(&bench.run(&["restart", "--no-wait", "--json"]))["restarting"], true);
    assert_eq!(bench.gateway.take().expect("ran").wait().0, Some(75));
}

#[test]
fn a_restart_into_a_broken_configuration_is_told_with_the_reason() {
    let mut bench = Bench::new();
    bench.start();
    let config = bench.home.path().join("config.yaml");
    std::fs::write(&config, "agent: {max_turns: many}\n").expect("written");
    let said = failed(&bench.run(&["restart"]), 1);
    assert!(said.contains("the new one could not start") && said.contains("config check"), "{said}");
    let status = bench.status();
    assert_eq!(
        (&status["gateway_state"], &status["ended"]),
        (&"startup_failed".into(), &"unstartable".into())
    );
    let text = fine(&bench.run(&["status"]));
    assert!(text.contains("could not start\n    the configuration cannot be used\n"), "{text}");
}
