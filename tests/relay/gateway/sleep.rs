//! Sleeping behind a connector: when, how, and what the world sees of it.

use super::{DISCORD, bench, say, shows, until};
use crate::support::Bench;
use petasos_fakes::Connector;

const SLEEPY: &str = "  relay_wake_url: https://wake.example\n  scale_to_zero:\n    enabled: true\n    \
                      idle_timeout_minutes: 0.02\n    tick_seconds: 0.1\n";

#[test]
fn with_nothing_to_do_it_ends_and_what_comes_meanwhile_is_answered_by_the_next() {
    let (mut bench, connector) = bench(&format!("{DISCORD}{SLEEPY}    action: exit\n"));
    say(&connector, "c1", "one");
    bench.launch();
    let (code, told) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(connector.read(|world| world.frames("going_idle").len()), 1);
    assert!(connector.read(|world| shows(world, "c1", "echo: one")), "what there was to do came first");
    say(&connector, "c1", "two");
    bench.launch();
    until(&connector, "an answer to what came while it slept", |world| shows(world, "c1", "echo: two"));
}

#[test]
fn a_machine_that_was_asked_to_sleep_is_back_as_soon_as_it_runs() {
    let (mut bench, connector) =
        bench(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 0'\n"));
    bench.launch();
    until(&connector, "it lies down", |world| world.closed == 1);
    say(&connector, "c1", "wake up");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: wake up"));
}

#[test]
fn without_a_grant_or_a_way_to_sleep_it_stays() {
    let (mut bench, connector) =
        bench(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 3'\n"));
    bench.launch();
    // A machine that does not sleep is taken back at once.
    until(&connector, "it lies down and is up again", |world| {
        world.frames("going_idle").len() == 1 && world.frames("hello").len() == 2 && world.open() == 1
    });
    say(&connector, "c1", "still here?");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: still here?"));
}

#[test]
fn whoever_lies_down_says_so_until_they_are_up_again() {
    let (mut bench, connector) =
        bench(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'sleep 1; exit 3'\n"));
    bench.launch();
    bench.await_state("running");
    until(&connector, "it lies down", |world| world.frames("going_idle").len() == 1);
    let state = bench.await_state("draining");
    assert_eq!(state["active_agents"], 0, "{state}");
    bench.await_state("running");
    say(&connector, "c1", "awake?");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: awake?"));
}

const WAKE: &str = "  relay_wake_url: https://wake.example\n";
const WANTED: &str = "  scale_to_zero:\n    enabled: true\n";
const EXIT: &str = "    action: exit\n";

/// What a gateway with this configuration says of sleeping.
fn says(telegram: bool, more: &str) -> String {
    let connector = Connector::start().expect("a fake");
    let gateway = format!("gateway:\n  relay_url: {}\n{DISCORD}{more}", connector.url());
    let setup = Bench::setup().with(&gateway);
    let mut bench = if telegram { setup.telegram() } else { setup }.build();
    bench.launch();
    until(&connector, "a handshake", |world| world.open() == 1);
    bench.await_state("running");
    let (_, said, _) = bench.terminate();
    let about = |line: &&str| line.contains("we sleep") || line.contains("we do not sleep");
    said.lines().filter(about).map(str::to_owned).collect()
}

#[test]
fn it_takes_everything_to_sleep_and_what_is_missing_is_said() {
    let all = format!("{WAKE}{WANTED}{EXIT}");
    for (telegram, config, want) in [
        (false, all.clone(), "we sleep when nobody needs us"),
        (
            false,
            format!("{all}telegram: {{enabled: false, token: '1:a'}}\n"),
            "we sleep when nobody needs us",
        ),
        (true, all, "a platform does not come over the relay"),
        (false, format!("{WANTED}{EXIT}"), "there is no address to wake us by"),
        (false, format!("{WAKE}{WANTED}"), "there is no way to sleep"),
    ] {
        let said = says(telegram, &config);
        assert!(said.contains(want), "{want}: {said:?} for {config}");
    }
    assert_eq!(says(false, WAKE), "", "nobody asked for it");
}
