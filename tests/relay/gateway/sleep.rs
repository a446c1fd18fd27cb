//! Sleep behind a connector: conditions, actions and the state that is shown.

use super::{DISCORD, fixture, push_text, shows, until};
use crate::support::ProgramFixture;
use petasos_fakes::Connector;

const SLEEPY: &str = "  relay_wake_url: https://wake.example\n  scale_to_zero:\n    enabled: true\n    \
                      idle_timeout_minutes: 0.02\n    tick_seconds: 0.1\n";

#[test]
fn idle_gateway_exits_and_next_start_answers() {
    let (mut fixture, connector) = fixture(&format!("{DISCORD}{SLEEPY}    action: exit\n"));
    push_text(&connector, "c1", "one");
    fixture.launch();
    let (code, told) = fixture.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(connector.read(|state| state.frames("going_idle").len()), 1);
    assert!(
        connector.read(|state| shows(state, "c1", "echo: one")),
        "the open message was not answered first"
    );
    push_text(&connector, "c1", "two");
    fixture.launch();
    until(&connector, "an answer to what came while it slept", |state| shows(state, "c1", "echo: two"));
}

#[test]
fn gateway_reconnects_after_sleep_command() {
    let (mut fixture, connector) =
        fixture(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 0'\n"));
    fixture.launch();
    until(&connector, "it goes to sleep", |state| state.closed == 1);
    push_text(&connector, "c1", "wake up");
    until(&connector, "an answer", |state| shows(state, "c1", "echo: wake up"));
}

#[test]
fn failed_sleep_command_keeps_gateway_running() {
    let (mut fixture, connector) =
        fixture(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 3'\n"));
    fixture.launch();
    // A machine that does not sleep reconnects at once.
    until(&connector, "it goes to sleep and reconnects", |state| {
        state.frames("going_idle").len() == 1 && state.frames("hello").len() == 2 && state.open() == 1
    });
    push_text(&connector, "c1", "still here?");
    until(&connector, "an answer", |state| shows(state, "c1", "echo: still here?"));
}

#[test]
fn state_is_draining_while_falling_asleep() {
    let (mut fixture, connector) =
        fixture(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'sleep 1; exit 3'\n"));
    fixture.launch();
    fixture.wait_state("running");
    until(&connector, "it goes to sleep", |state| state.frames("going_idle").len() == 1);
    let state = fixture.wait_state("draining");
    assert_eq!(state["active_agents"], 0, "{state}");
    fixture.wait_state("running");
    push_text(&connector, "c1", "awake?");
    until(&connector, "an answer", |state| shows(state, "c1", "echo: awake?"));
}

const WAKE: &str = "  relay_wake_url: https://wake.example\n";
const WANTED: &str = "  scale_to_zero:\n    enabled: true\n";
const EXIT: &str = "    action: exit\n";

/// The log lines of a gateway with this configuration about sleep.
fn sleep_log(telegram: bool, more: &str) -> String {
    let connector = Connector::start().expect("a fake");
    let gateway = format!("gateway:\n  relay_url: {}\n{DISCORD}{more}", connector.url());
    let setup = ProgramFixture::builder().with(&gateway);
    let mut fixture = if telegram { setup.telegram() } else { setup }.build();
    fixture.launch();
    until(&connector, "a handshake", |state| state.open() == 1);
    fixture.wait_state("running");
    let (_, said, _) = fixture.terminate();
    let about = |line: &&str| line.contains("sleeps when idle") || line.contains("does not sleep when idle");
    said.lines().filter(about).map(str::to_owned).collect()
}

#[test]
fn logs_missing_requirements_for_sleep() {
    let all = format!("{WAKE}{WANTED}{EXIT}");
    for (telegram, config, want) in [
        (false, all.clone(), "the gateway sleeps when idle"),
        (false, format!("{all}telegram: {{enabled: false, token: '1:a'}}\n"), "the gateway sleeps when idle"),
        (true, all, "a platform does not come over the relay"),
        (false, format!("{WANTED}{EXIT}"), "there is no address to wake us by"),
        (false, format!("{WAKE}{WANTED}"), "there is no way to sleep"),
    ] {
        let said = sleep_log(telegram, &config);
        assert!(said.contains(want), "{want}: {said:?} for {config}");
    }
    assert_eq!(sleep_log(false, WAKE), "", "sleep is not configured");
}
