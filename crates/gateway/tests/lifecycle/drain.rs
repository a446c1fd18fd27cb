//! External drain: published state, refused and accepted messages.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use petasos_core::journal::MessageOutcome;
use petasos_core::lifecycle::{NotAccepting, State};
use petasos_gateway::home::peers::SignalMarker;
use petasos_gateway::home::state::{self, GatewayLoad, ProcessState};
use petasos_gateway::home::{drain, state::path};
use petasos_gateway::{Error, clock};
use serde_json::json;

use crate::support::{GatewayFixture, SOON, eventually, key, web};

/// Longer than the debounce of the state file.
const SETTLED: Duration = Duration::from_millis(300);

pub(crate) fn ask(principal: &str) -> drain::DrainRequest {
    drain::DrainRequest { principal: principal.into(), ..drain::DrainRequest::default() }
}

#[track_caller]
pub(crate) fn engage(world: &GatewayFixture) {
    drain::write(world.home(), &drain::DrainRequest::default(), clock::now()).expect("a marker");
    world.until("draining", |it| it.drain.is_some().then_some(()));
}

#[track_caller]
pub(crate) fn release(world: &GatewayFixture) {
    assert!(drain::clear(world.home()).expect("cleared"));
    world.until("open", |it| it.drain.is_none().then_some(()));
}

#[track_caller]
fn expect_published(world: &GatewayFixture, want: State) {
    eventually(&format!("published as {want:?}"), || {
        (world.state().get("gateway_state")?.as_str()? == want.as_str()).then_some(())
    });
}

/// Changes with every write, because the file is replaced.
fn state_file_inode(world: &GatewayFixture) -> u64 {
    path(world.home()).metadata().expect("a state file").ino()
}

/// Waits until the gateway has polled its home this many times and would have published a change.
fn let_poll(world: &GatewayFixture, times: usize) {
    let bait = SignalMarker::PlannedStop.path(world.home());
    let started = clock::monotonic();
    let mut looks = 0;
    while looks < times || started.elapsed() < SETTLED {
        // Every poll removes an unparsable planned-stop marker.
        std::fs::write(&bait, "?").expect("a file");
        eventually("looked at", || (!bait.exists()).then_some(()));
        looks += 1;
    }
}

#[test]
fn drain_marker_drains_and_its_removal_reopens() {
    let world = GatewayFixture::new(|_| {});
    world.until("running", |it| (it.state == State::Running).then_some(()));
    expect_published(&world, State::Running);
    for _ in 0..2 {
        engage(&world);
        assert_eq!(world.handle().snapshot().state, State::Draining);
        expect_published(&world, State::Draining);
        release(&world);
        assert_eq!(world.handle().snapshot().state, State::Running);
        expect_published(&world, State::Running);
    }
}

#[test]
fn publishes_only_changes() {
    let world = GatewayFixture::new(|_| {});
    expect_published(&world, State::Running);
    let_poll(&world, 1);
    let before = state_file_inode(&world);
    let_poll(&world, 5);
    // A completed poll is a heartbeat, not a change.
    let chat = json!({"id": 7, "type": "private"});
    world.telegram.push_update(json!({"message": {"message_id": 1, "date": 0, "chat": chat}}));
    eventually("polled again", || (world.telegram.pending_updates() == 0).then_some(()));
    let_poll(&world, 1);
    assert_eq!(state_file_inode(&world), before, "without a marker");
    engage(&world);
    expect_published(&world, State::Draining);
    let_poll(&world, 1);
    let before = state_file_inode(&world);
    let marker = std::fs::read(drain::path(world.home())).expect("a marker");
    for _ in 0..5 {
        std::fs::write(drain::path(world.home()), &marker).expect("the same again");
        let_poll(&world, 1);
    }
    assert_eq!(state_file_inode(&world), before, "with the same marker again and again");
}

#[test]
fn renewed_marker_continues_the_same_drain() {
    let world = GatewayFixture::new(|_| {});
    engage(&world);
    let since = world.handle().snapshot().drain.expect("a drain").since;
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
fn drain_refuses_message_to_idle_chat() {
    let world = GatewayFixture::new(|_| {});
    engage(&world);
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "draining");
    let text = world.telegram.texts(7).remove(0);
    assert!(text.contains("maintenance") && text.contains("resend"), "{text}");
    let refused = world.read(|reader| reader.settled(MessageOutcome::Refused, 10));
    assert_eq!(refused.iter().map(|it| it.inbound.text.as_str()).collect::<Vec<_>>(), ["hello"]);
    assert_eq!(world.read(|reader| reader.turn(refused[0].id.into())), None);
    assert_eq!(world.entry(7), None);
    assert!(world.read(|reader| reader.sessions(None, 10)).is_empty());
    assert!(world.model.requests().is_empty());
    release(&world);
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
}

#[test]
fn drain_refuses_page_message_before_storing_it() {
    let world = GatewayFixture::new(|_| {});
    engage(&world);
    let refused = world.submit(web("c1", "hello"));
    assert!(matches!(refused, Err(Error::Closed(NotAccepting::Draining))), "{refused:?}");
    assert_eq!(world.read(|reader| reader.newest()).0, 0);
    release(&world);
    world.send_web("c1", "hello");
    assert!(world.model.wait_requests(1, SOON));
}

#[test]
fn running_turn_finishes_during_drain() {
    let world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    let before = world.handle().snapshot().holders;
    engage(&world);
    expect_published(&world, State::Draining);
    assert_eq!(world.handle().snapshot().holders, before, "its place is untouched");
    assert_eq!(world.state()["active_agents"], 1);
    gate.open();
    world.expect_messages(7, &["echo: slow"]);
    assert_eq!(world.model.requests().len(), 1, "asked once");
    let fields = eventually("idle", || Some(world.state()).filter(|it| it["active_agents"] == 0));
    assert_eq!(fields["gateway_state"], "draining");
    assert_eq!(
        GatewayLoad::of(&fields, ProcessState::Live),
        GatewayLoad { active_agents: 0, busy: false, drainable: false }
    );
}

#[test]
fn internal_messages_run_during_drain() {
    let world = GatewayFixture::new(|_| {});
    engage(&world);
    let mut inbound = web("c1", "the build has ended");
    inbound.internal = true;
    world.submit(inbound).expect("accepted");
    assert!(world.model.wait_requests(1, SOON));
    assert_eq!(world.model.requests()[0].last_user, "the build has ended");
    assert_eq!(world.handle().snapshot().state, State::Draining);
}

#[test]
fn existing_marker_applies_before_the_first_message() {
    let mut world = GatewayFixture::idle(|_| {});
    drain::write(world.home(), &ask("nas"), clock::now()).expect("a marker");
    world.telegram.push_text(7, 7, "waiting since yesterday");
    world.start();
    assert_eq!(world.handle().snapshot().state, State::Draining, "from the first moment");
    world.expect_last_message(7, "draining");
    assert!(world.model.requests().is_empty());
    assert_eq!(
        state::read(world.home()).and_then(|it| it.get("drain").cloned()).expect("published")["principal"],
        "nas"
    );
}

#[test]
fn commands_work_during_drain() {
    let world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    for (chat, command, want) in [
        (7, "/status", "Gateway: draining, 1 active turn"),
        (8, "/status", "Session: idle"),
        (7, "/help", "/resume"),
        (7, "/stop", "Stopped"),
        (8, "/stop", "No active task"),
        (7, "/new", "New session"),
        (8, "/help", "/resume"),
    ] {
        world.telegram.push_text(chat, chat, command);
        world.expect_last_message(chat, want);
    }
    assert_eq!(world.handle().snapshot().active(), 0);
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn retry_and_undo_are_refused_during_drain() {
    let world = GatewayFixture::new(|_| {});
    world.telegram.push_text(7, 7, "tell me");
    world.expect_messages(7, &["echo: tell me"]);
    let before = world.transcript(7);
    engage(&world);
    for command in ["/retry", "/queue and then this"] {
        world.telegram.push_text(7, 7, command);
        world.expect_last_message(7, "draining");
        assert_eq!(world.transcript(7), before, "{command}");
        world.telegram.push_text(7, 7, "/help");
        world.expect_last_message(7, "/resume");
    }
    release(&world);
    world.telegram.push_text(7, 7, "/retry");
    world.expect_last_message(7, "echo: tell me");
    assert_eq!(world.transcript(7).len(), 2);
}

#[test]
fn shutdown_takes_precedence_over_drain() {
    let mut world = GatewayFixture::with(|setup| setup.lifetime.drain_timeout = SOON);
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.begin_shutdown(petasos_core::lifecycle::ShutdownReason::Stop);
    release(&world);
    assert_eq!(world.handle().snapshot().state, State::Draining);
    world.telegram.push_text(8, 8, "hello");
    world.expect_last_message(8, "Gateway is shutting down and is not accepting new work right now");
    assert!(world.handle().skip(&key(7)));
    world.wait_for_exit();
    assert_eq!(world.state()["gateway_state"], "stopped");
}
