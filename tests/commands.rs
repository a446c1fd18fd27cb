//! Stopping, restarting, draining and replacing a gateway, as a person or a script does it.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use petasos_fakes::model::Point;
use serde_json::Value;
use support::{Bench, Gateway, SOON, failed, fine, json, read_until, stderr, stdout};
use tempfile::TempDir;

/// The conversation of [`busy`].
const SESSION: &str = "agent:main:telegram:dm:7";
/// Long enough that nobody reaches its end.
const PATIENT: &str = "agent: {restart_drain_timeout: 600}\n";
const HASTY: &str = "agent: {restart_drain_timeout: 0.2}\n";

/// A gateway with a turn whose model does not answer before the gate is opened.
fn busy(more: &str) -> (Bench, petasos_fakes::Gate) {
    let mut bench = Bench::with(more);
    let gate = bench.model.gate(Point::Before);
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    assert!(gate.wait(SOON), "the model was asked");
    (bench, gate)
}

fn spawn(bench: &Bench, args: &[&str]) -> Child {
    let mut command = bench.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("petasos starts")
}

/// A gateway that is not our child. Ended with this, should the test fail.
struct Stranger(u32);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _gone_already =
            Command::new("kill").args(["-KILL", &self.0.to_string()]).stderr(Stdio::null()).status();
    }
}

fn pid_in(told: &Value) -> u32 {
    told["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
}

#[track_caller]
fn eventually(what: &str, is_it: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::yield_now();
    }
}

/// Waits until the gateway answers.
#[track_caller]
fn up(bench: &Bench) {
    eventually("up", || bench.status()["version"].is_string());
}

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
fn a_gateway_that_left_to_be_started_again_says_so() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    let gateway = bench.gateway.take().expect("runs");
    gateway.signal("USR1");
    assert_eq!(gateway.wait().0, Some(75));
    assert_eq!(bench.status()["ended"], "restart");
    assert!(fine(&bench.run(&["status"])).contains("waits to be started again"));
}

#[test]
fn a_gateway_that_was_killed_while_it_stopped_has_ended_in_the_middle_of_a_stop() {
    let (mut bench, _gate) = busy(PATIENT);
    bench.gateway.as_ref().expect("runs").signal("INT");
    eventually("stopping", || bench.state_file().is_some_and(|state| state["drain"]["kind"] == "shutdown"));
    bench.kill();
    assert_eq!(bench.status()["ended"], "amid_stop");
    assert!(fine(&bench.run(&["status"])).contains("ended in the middle of a stop"));
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
fn the_status_of_a_killed_gateway_says_so() {
    let (mut bench, _gate) = busy("");
    bench.await_state("running");
    eventually("busy", || bench.state_file().is_some_and(|state| state["active_agents"] == 1));
    bench.kill();
    assert_eq!(bench.state_file().expect("a state file")["gateway_state"], "running");
    let told = bench.status();
    assert_eq!((&told["gateway_running"], &told["gateway_state"]), (&false.into(), &"stopped".into()));
    assert_eq!((&told["gateway_busy"], &told["gateway_drainable"]), (&false.into(), &false.into()));
    assert_eq!((&told["active_agents"], &told["ended"]), (&0.into(), &"killed".into()));
    let said = fine(&bench.run(&["status"]));
    assert!(said.contains("is stopped") && said.contains("did not stop by itself"), "{said}");
}

#[test]
fn the_status_after_a_signal_that_nobody_announced_names_it() {
    let mut bench = Bench::new();
    bench.start();
    assert_eq!(bench.terminate().0, Some(1));
    assert_eq!(bench.state_file().expect("a state file")["gateway_state"], "running");
    let told = bench.status();
    assert_eq!(
        (&told["gateway_state"], &told["gateway_exit_reason"]),
        (&"stopped".into(), &"SIGTERM".into())
    );
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

#[test]
fn doctor_tells_of_left_over_markers_and_of_the_service() {
    let bench = Bench::new();
    let marker = bench.home.path().join(".gateway-takeover.json");
    std::fs::write(&marker, "{}").expect("written");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(120);
    std::fs::File::options()
        .append(true)
        .open(&marker)
        .and_then(|it| it.set_modified(long_ago))
        .expect("aged");
    let said = stdout(&bench.run(&["doctor"]));
    assert!(said.contains(".gateway-takeover.json is left over"), "{said}");
    assert!(said.contains("service      not installed"), "{said}");
}

#[test]
fn doctor_lists_hooks_and_names_those_that_are_skipped() {
    let bench = Bench::new();
    assert!(!stdout(&bench.run(&["doctor"])).contains("hooks"), "there are none");
    for (folder, yaml) in [
        ("greet", "name: greeter\nevents: [session:start, 'command:*']\ncommand: cat\n"),
        ("dream", "events: [agent:dream]\ncommand: cat\n"),
        ("mute", "events: [agent:end]\n"),
    ] {
        let folder = bench.home.path().join("hooks").join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("HOOK.yaml"), yaml).expect("written");
    }
    let said = stdout(&bench.run(&["doctor"]));
    let lines: Vec<&str> =
        said.lines().filter(|line| line.split_whitespace().nth(1) == Some("hooks")).collect();
    let [fine, dream, mute] = lines[..] else { panic!("{said}") };
    assert!(fine.contains("ok") && fine.ends_with("greeter (session:start, command:*)"), "{fine}");
    assert!(dream.contains("hooks/dream is skipped: there is no event \"agent:dream\""), "{dream}");
    assert!(mute.contains("hooks/mute is skipped: there is neither a file"), "{mute}");
    assert!([dream, mute].iter().all(|line| line.contains("warn")), "{said}");
}

#[test]
fn links_are_listed_paused_and_brought_back() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    let listed = fine(&bench.run(&["links"]));
    assert!(listed.contains("telegram") && listed.contains("connected"), "{listed}");
    assert!(fine(&bench.run(&["links", "pause", "Telegram"])).contains("paused"));
    bench.await_state("degraded");
    bench.telegram.push_text(7, 7, "hello");
    let polls = bench.telegram.calls_of("getUpdates").len();
    let listed: serde_json::Value =
        serde_json::from_str(&fine(&bench.run(&["links", "--json"]))).expect("JSON");
    assert_eq!(listed[0]["state"], "paused", "{listed}");
    assert_eq!(bench.telegram.calls_of("getUpdates").len(), polls, "nobody polls while it is paused");
    fine(&bench.run(&["links", "resume", "telegram"]));
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let unknown = bench.run(&["links", "retry", "icq"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(support::stderr(&unknown).contains("petasos links lists them"), "{}", support::stderr(&unknown));
}
