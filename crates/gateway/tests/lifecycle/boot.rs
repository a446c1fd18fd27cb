//! Startup: stuck, crashed and imported sessions.

use petasos_core::lifecycle::ShutdownReason;
use petasos_core::session::{CrashRecovery, Entry, ResetReason, ResumeReason, Routing};
use petasos_core::{SessionId, Source};
use petasos_gateway::clock;
use petasos_gateway::home::counts;
use petasos_store::local_time;

use super::stop::RESTART;
use crate::support::planted::{PlantedSession, ResumeMark};
use crate::support::{GatewayFixture, SOON, Setup, eventually, key, telegram};

/// Disables the restart breaker.
fn without_breaker(setup: &mut Setup) {
    setup.lifetime.loop_guard.max_restarts = 0;
}

/// A home of another program with one session, interrupted this many times in a row.
fn imported_home(chat: i64, count: u32) -> GatewayFixture {
    let world = GatewayFixture::idle(|_| {});
    let mut source = Source::new(telegram(), petasos_core::message::ChatType::Dm, chat.to_string());
    source.user_id = Some(chat.to_string());
    let id = SessionId("20261115_181205_13f6a7af".into());
    let mut entry = Entry::new(key(chat), id, Some(source), local_time(clock::now()));
    entry.resume_pending = true;
    entry.resume_reason = Some(ResumeReason::RestartTimeout);
    entry.last_resume_marked_at = Some(entry.created_at);
    let routing = Routing([(key(chat), entry)].into());
    let folder = world.home().join("sessions");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("sessions.json"), serde_json::to_vec(&routing).expect("json"))
        .expect("a file");
    std::fs::write(counts::path(world.home()), format!(r#"{{"{}":{count}}}"#, key(chat))).expect("a file");
    world
}

/// The next message to a suspended session resets it, and author and model are notified.
#[track_caller]
fn expect_reset(world: &GatewayFixture, chat: i64) {
    let before = world.entry(chat).expect("an entry");
    assert!(before.suspended, "{before:?}");
    let asked = world.model.requests().len();
    world.telegram.push_text(chat, chat, "hello again");
    world.expect_last_message(chat, "hello again");
    let after = world.entry(chat).expect("an entry");
    assert_ne!(after.session_id, before.session_id);
    assert!(after.was_auto_reset && !after.suspended && !after.resume_pending, "{after:?}");
    assert_eq!(after.auto_reset_reason, Some(ResetReason::Suspended));
    world.expect_message(chat, "Session automatically reset (suspended)");
    let input = world.model.requests()[asked].body().to_string();
    assert!(!input.contains("stuck") && input.matches("[System note:").count() == 1, "{input}");
}

#[test]
fn resets_session_interrupted_three_times_in_a_row() {
    let mut world = imported_home(7, 3);
    world.start();
    assert!(world.entry(7).is_some_and(|entry| entry.suspended && entry.resume_pending));
    expect_reset(&world, 7);
    assert_eq!(world.model.requests().len(), 1, "it was not resumed");
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    world.crash();
    world.start();
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended), "it counts once");
}

#[test]
fn success_clears_count_of_twice_interrupted_session() {
    let mut world = imported_home(7, 2);
    world.start();
    world.expect_message(7, "echo: [System note:");
    eventually("cleared", || world.mark(7).is_none().then_some(()));
    assert_eq!(world.failures(7), 0);
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    assert_eq!(world.entry(7).expect("an entry").session_id.as_str(), "20261115_181205_13f6a7af");
}

#[test]
fn gives_up_turn_interrupted_by_three_shutdowns() {
    type Cut = fn(&mut GatewayFixture);
    let cuts: [Cut; 3] = [
        |world| drop(world.shut_down(RESTART)),
        |world| drop(world.shut_down(ShutdownReason::Stop)),
        |world| world.crash(),
    ];
    for cut in cuts {
        let mut world = GatewayFixture::with(without_breaker);
        let gate = world.hold_model_on("stuck");
        world.telegram.push_text(7, 7, "stuck");
        for asked in 1..=3 {
            assert!(world.model.wait_requests(asked, SOON), "start {asked} asks again");
            eventually("at the gate", || (gate.waiting() > 0).then_some(()));
            cut(&mut world);
            assert!(gate.wait_gone(asked, SOON));
            world.start();
        }
        world.expect_message(7, "so I have stopped trying");
        assert_eq!(world.model.requests().len(), 3, "it is not asked again");
        assert!(world.read(|reader| reader.open_turns()).is_empty());
        expect_reset(&world, 7);
    }
}

#[test]
fn successful_turn_resets_interruption_count() {
    let mut world = GatewayFixture::with(without_breaker);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    for cut in 1..=2 {
        assert!(gate.wait(SOON));
        world.shut_down(RESTART);
        assert!(gate.wait_gone(cut, SOON));
        assert_eq!(world.failures(7), cut as u32);
        world.start();
    }
    gate.open();
    world.expect_last_message(7, "echo: ");
    eventually("cleared", || (world.failures(7) == 0).then_some(()));
    let gate = world.hold_model_on("again");
    world.telegram.push_text(7, 7, "again");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    assert_eq!(world.failures(7), 1);
    gate.open();
    world.start();
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
    world.expect_last_message(7, "again");
}

#[test]
fn waiting_turn_is_not_counted_as_interrupted() {
    let mut world = GatewayFixture::with(without_breaker);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    assert_eq!(world.failures(7), 1);
    world.telegram.down();
    world.start();
    world.stop();
    assert_eq!(world.failures(7), 1, "its platform was down, so it was not even running");
    for _ in 0..3 {
        world.start();
        world.crash();
    }
    assert_eq!(world.failures(7), 1, "neither was it when the process died");
    world.telegram.up().expect("telegram comes back");
    gate.open();
    world.start();
    world.expect_last_message(7, "stuck");
    eventually("cleared", || (world.failures(7) == 0).then_some(()));
}

/// Crashes right after a turn of chat 8; chat 7 is marked already.
fn crash_after_turn(mode: CrashRecovery) -> GatewayFixture {
    let mut world = GatewayFixture::idle(|setup| setup.lifetime.crash_recovery = mode);
    // A reason that is not resumed automatically.
    let reason = ResumeReason::Other("power_cut".into());
    world.plant(&PlantedSession { mark: ResumeMark::now(reason), ..PlantedSession::new(7) });
    world.start();
    world.telegram.push_text(8, 8, "hello");
    world.expect_messages(8, &["echo: hello"]);
    world.wait_until_delivered();
    world.crash();
    world.start();
    world
}

#[test]
fn crash_recovery_mode_decides_about_recent_sessions() {
    for (mode, suspended, mark) in [
        (CrashRecovery::Journal, false, None),
        (CrashRecovery::Suspend, true, None),
        (CrashRecovery::Resume, false, Some("restart_interrupted")),
    ] {
        let world = crash_after_turn(mode);
        let other = world.entry(8).expect("an entry");
        assert_eq!((other.suspended, world.mark(8).as_deref()), (suspended, mark), "{mode:?}");
        let own = world.entry(7).expect("an entry");
        assert_eq!((own.suspended, world.mark(7).as_deref()), (false, Some("power_cut")), "{mode:?}");
    }
}

#[test]
fn clean_shutdown_leaves_sessions_unchanged() {
    for mode in [CrashRecovery::Suspend, CrashRecovery::Resume] {
        let mut world = GatewayFixture::with(|setup| setup.lifetime.crash_recovery = mode);
        world.telegram.push_text(8, 8, "hello");
        world.expect_messages(8, &["echo: hello"]);
        world.restart();
        assert!(world.entry(8).is_some_and(|entry| !entry.suspended && !entry.resume_pending), "{mode:?}");
    }
}

#[test]
fn resumes_crashed_turn_in_every_recovery_mode() {
    for mode in [CrashRecovery::Journal, CrashRecovery::Suspend, CrashRecovery::Resume] {
        let mut world = GatewayFixture::with(|setup| setup.lifetime.crash_recovery = mode);
        let gate = world.hold_model_on("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        world.crash();
        assert_eq!(world.mark(7), None, "not marked before the crash");
        gate.open();
        world.start();
        world.expect_message(7, "a gateway interruption");
        let asked = &world.model.requests()[1].last_user;
        assert!(asked.ends_with("\n\nslow"), "{asked}");
        eventually("cleared", || world.mark(7).is_none().then_some(()));
        assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
    }
}

#[test]
fn chat_without_open_turn_gets_no_crash_notice() {
    for mode in [CrashRecovery::Journal, CrashRecovery::Resume] {
        let mut world = GatewayFixture::with(|setup| setup.lifetime.crash_recovery = mode);
        world.telegram.push_text(8, 8, "hello");
        world.expect_messages(8, &["echo: hello"]);
        world.wait_until_delivered();
        world.crash();
        world.start();
        world.telegram.push_text(9, 9, "are you there?");
        world.expect_last_message(9, "echo: are you there?");
        world.until("idle", |it| (it.active() == 0).then_some(()));
        assert_eq!(world.model.requests().len(), 2, "{mode:?}: an unrequested turn");
        assert_eq!(world.telegram.texts(8), ["echo: hello"], "{mode:?}");
        world.telegram.push_text(8, 8, "and now?");
        world.expect_last_message(8, "and now?");
        let input = world.model.requests()[2].body().to_string();
        assert!(input.contains("hello"), "{mode:?}: the history is kept");
    }
}

#[test]
fn session_cap_also_applies_to_resumed_turns() {
    let world = GatewayFixture::with(|setup| setup.lifetime.session_cap = Some(1));
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.telegram.push_text(8, 8, "hello");
    world.expect_last_message(8, "at the active session limit (1/1)");
    let mut inbound = crate::support::web("c1", "the build has ended");
    inbound.internal = true;
    let key = world.submit(inbound).expect("accepted");
    let mut view = world.runtime.block_on(world.handle().view(&key)).expect("a view");
    world.runtime.block_on(view.wait_for(|view| view.queued == 1)).expect("it waits");
    gate.open();
    let asked = |desk: &petasos_fakes::model::State| {
        desk.requests().any(|request| request.last_user == "the build has ended").then_some(())
    };
    assert!(world.model.wait_until(SOON, asked).is_some(), "it was turned away");
}
