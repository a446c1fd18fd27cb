//! `status`, `doctor` and `links`: what is told of a gateway, also when it is gone.

use std::time::Duration;

use crate::support::{Bench, eventually, fine, stderr, stdout};
use crate::{PATIENT, busy};

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
    assert_eq!(listed["links"][0]["state"], "paused", "{listed}");
    assert_eq!(bench.telegram.calls_of("getUpdates").len(), polls, "nobody polls while it is paused");
    fine(&bench.run(&["links", "resume", "telegram"]));
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let unknown = bench.run(&["links", "retry", "icq"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("petasos links lists them"), "{}", stderr(&unknown));
}
