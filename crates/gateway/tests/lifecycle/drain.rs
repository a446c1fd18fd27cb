//! The drain that can be taken back: what is published, who is turned away, who is not.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use petasos_core::journal::Outcome;
use petasos_core::lifecycle::{Closed, State};
use petasos_gateway::home::peers::Peer;
use petasos_gateway::home::state::{self, Load, Process};
use petasos_gateway::home::{drain, state::path};
use petasos_gateway::{Error, clock};
use serde_json::json;

use crate::support::{SOON, World, eventually, key, web};

/// Longer than changes may be gathered before they are written.
const SETTLED: Duration = Duration::from_millis(300);

pub(crate) fn ask(principal: &str) -> drain::Ask {
    drain::Ask { principal: principal.into(), ..drain::Ask::default() }
}

/// Asks for a drain and waits until it has begun.
#[track_caller]
pub(crate) fn engage(world: &World) {
    drain::write(world.home(), &drain::Ask::default(), clock::now()).expect("a marker");
    world.until("draining", |it| it.drain.is_some().then_some(()));
}

#[track_caller]
pub(crate) fn release(world: &World) {
    assert!(drain::clear(world.home()).expect("cleared"));
    world.until("open", |it| it.drain.is_none().then_some(()));
}

#[track_caller]
fn publishes(world: &World, want: State) {
    eventually(&format!("published as {want:?}"), || {
        (world.state().get("gateway_state")?.as_str()? == want.as_str()).then_some(())
    });
}

/// The file itself: a write replaces it.
fn edition(world: &World) -> u64 {
    path(world.home()).metadata().expect("a state file").ino()
}

/// Lets the gateway look at its home some times, for long enough that it would have published something.
fn looks_around(world: &World, times: usize) {
    let (bait, started) = (Peer::PlannedStop.path(world.home()), Instant::now());
    let mut looks = 0;
    while looks < times || started.elapsed() < SETTLED {
        // What nobody can understand is cleared away by whoever looks.
        std::fs::write(&bait, "?").expect("a file");
        eventually("looked at", || (!bait.exists()).then_some(()));
        looks += 1;
    }
}

#[test]
fn a_marker_drains_the_gateway_and_its_removal_opens_it_again() {
    let world = World::new(|_| {});
    world.until("running", |it| (it.state == State::Running).then_some(()));
    publishes(&world, State::Running);
    for _ in 0..2 {
        engage(&world);
        assert_eq!(world.handle().situation().state, State::Draining);
        publishes(&world, State::Draining);
        release(&world);
        assert_eq!(world.handle().situation().state, State::Running);
        publishes(&world, State::Running);
    }
}

#[test]
fn nothing_is_published_while_nothing_changes() {
    let world = World::new(|_| {});
    publishes(&world, State::Running);
    looks_around(&world, 1);
    let before = edition(&world);
    looks_around(&world, 5);
    // A poll that came back is a sign of life, and no news.
    let chat = json!({"id": 7, "type": "private"});
    world.telegram.push_update(json!({"message": {"message_id": 1, "date": 0, "chat": chat}}));
    eventually("polled again", || (world.telegram.pending_updates() == 0).then_some(()));
    looks_around(&world, 1);
    assert_eq!(edition(&world), before, "without a marker");
    engage(&world);
    publishes(&world, State::Draining);
    looks_around(&world, 1);
    let (before, marker) = (edition(&world), std::fs::read(drain::path(world.home())).expect("a marker"));
    for _ in 0..5 {
        std::fs::write(drain::path(world.home()), &marker).expect("the same again");
        looks_around(&world, 1);
    }
    assert_eq!(edition(&world), before, "with the same marker again and again");
}

#[test]
fn a_marker_that_is_renewed_goes_on_with_the_same_drain() {
    let world = World::new(|_| {});
    engage(&world);
    let since = world.handle().situation().drain.expect("a drain").since;
    for principal in ["nas", "dashboard", "nas"] {
        drain::write(world.home(), &ask(principal), clock::now()).expect("a marker");
        let drain = world.until("renewed", |it| {
            assert_eq!(it.state, State::Draining);
            it.drain.clone().filter(|drain| drain.principal.as_deref() == Some(principal))
        });
        assert_eq!(drain.since, since);
    }
}

#[test]
fn an_idle_chat_is_told_to_come_again_and_nothing_of_it_is_kept() {
    let world = World::new(|_| {});
    engage(&world);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "draining");
    let text = world.telegram.texts(7).remove(0);
    assert!(text.contains("maintenance") && text.contains("resend"), "{text}");
    let refused = world.read(|reader| reader.settled(Outcome::Refused, 10));
    assert_eq!(refused.iter().map(|it| it.inbound.text.as_str()).collect::<Vec<_>>(), ["hello"]);
    assert_eq!(world.read(|reader| reader.turn(refused[0].id.into())), None);
    assert_eq!(world.entry(7), None);
    assert!(world.read(|reader| reader.sessions(None, 10)).is_empty());
    assert!(world.model.requests().is_empty());
    release(&world);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
}

#[test]
fn the_page_is_refused_before_anything_is_stored() {
    let world = World::new(|_| {});
    engage(&world);
    let refused = world.submit(web("c1", "hello"));
    assert!(matches!(refused, Err(Error::Closed(Closed::Draining))), "{refused:?}");
    assert_eq!(world.read(|reader| reader.newest()).0, 0);
    release(&world);
    world.say("c1", "hello");
    assert!(world.model.wait_requests(1, SOON));
}

#[test]
fn a_running_turn_keeps_its_place_and_finishes() {
    let world = World::new(|_| {});
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    let before = world.handle().situation().holders;
    engage(&world);
    publishes(&world, State::Draining);
    assert_eq!(world.handle().situation().holders, before, "its place is untouched");
    assert_eq!(world.state()["active_agents"], 1);
    gate.open();
    world.shows(7, &["echo: slow"]);
    assert_eq!(world.model.requests().len(), 1, "asked once");
    let fields = eventually("idle", || Some(world.state()).filter(|it| it["active_agents"] == 0));
    assert_eq!(fields["gateway_state"], "draining");
    assert_eq!(Load::of(&fields, Process::Live), Load { active_agents: 0, busy: false, drainable: false });
}

#[test]
fn what_the_gateway_tells_itself_runs_in_a_drain() {
    let world = World::new(|_| {});
    engage(&world);
    let mut inbound = web("c1", "the build has ended");
    inbound.internal = true;
    world.submit(inbound).expect("accepted");
    assert!(world.model.wait_requests(1, SOON));
    assert_eq!(world.model.requests()[0].last_user, "the build has ended");
    assert_eq!(world.handle().situation().state, State::Draining);
}

#[test]
fn a_marker_that_was_there_first_counts_before_the_first_message() {
    let mut world = World::idle(|_| {});
    drain::write(world.home(), &ask("nas"), clock::now()).expect("a marker");
    world.telegram.push_text(7, 7, "waiting since yesterday");
    world.start();
    assert_eq!(world.handle().situation().state, State::Draining, "from the first moment");
    world.ends_with(7, "draining");
    assert!(world.model.requests().is_empty());
    assert_eq!(
        state::read(world.home()).and_then(|it| it.get("drain").cloned()).expect("told")["principal"],
        "nas"
    );
}

#[test]
fn commands_are_obeyed_in_a_drain() {
    let world = World::new(|_| {});
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    for (chat, command, want) in [
        (7, "/status", "Gateway: draining, 1 at work"),
        (8, "/status", "Session: idle"),
        (7, "/help", "/resume"),
        (7, "/stop", "Stopped"),
        (8, "/stop", "No active task"),
        (7, "/new", "New session"),
        (8, "/help", "/resume"),
    ] {
        world.telegram.push_text(chat, chat, command);
        world.ends_with(chat, want);
    }
    assert_eq!(world.handle().situation().active(), 0);
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn what_cannot_be_asked_again_now_is_not_taken_back() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "tell me");
    world.shows(7, &["echo: tell me"]);
    let before = world.transcript(7);
    engage(&world);
    for command in ["/retry", "/queue and then this"] {
        world.telegram.push_text(7, 7, command);
        world.ends_with(7, "draining");
        assert_eq!(world.transcript(7), before, "{command}");
        world.telegram.push_text(7, 7, "/help");
        world.ends_with(7, "/resume");
    }
    release(&world);
    world.telegram.push_text(7, 7, "/retry");
    world.ends_with(7, "echo: tell me");
    assert_eq!(world.transcript(7).len(), 2);
}

#[test]
fn a_stop_wins_over_the_drain_and_its_end() {
    let mut world = World::with(|setup| setup.lifetime.drain_timeout = SOON);
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.begin_to_leave(petasos_core::lifecycle::Leave::Stop);
    release(&world);
    assert_eq!(world.handle().situation().state, State::Draining);
    world.telegram.push_text(8, 8, "hello");
    world.ends_with(8, "Gateway is shutting down and is not accepting new work right now");
    assert!(world.handle().skip(&key(7)));
    world.end();
    assert_eq!(world.state()["gateway_state"], "stopped");
}
