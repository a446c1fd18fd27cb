//! What a start decides about sessions it did not see end: stuck, crashed, imported.

use petasos_core::lifecycle::Leave;
use petasos_core::session::{CrashRecovery, Entry, ResetReason, ResumeReason, Routing};
use petasos_core::{SessionId, Source};
use petasos_gateway::clock;
use petasos_gateway::home::counts;
use petasos_store::local_time;

use super::stop::RESTART;
use crate::support::planted::{Mark, Planted};
use crate::support::{SOON, Setup, World, eventually, key, telegram};

/// Every start resumes, however many there were.
fn without_guard(setup: &mut Setup) {
    setup.lifetime.loop_guard.max_restarts = 0;
}

/// A home that another program left: one conversation, interrupted so many times in a row.
fn foreign_home(chat: i64, count: u32) -> World {
    let world = World::idle(|_| {});
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

/// The next message to a suspended session starts another one, and both sides are told.
#[track_caller]
fn starts_afresh(world: &World, chat: i64) {
    let before = world.entry(chat).expect("an entry");
    assert!(before.suspended, "{before:?}");
    let asked = world.model.requests().len();
    world.telegram.push_text(chat, chat, "hello again");
    world.ends_with(chat, "hello again");
    let after = world.entry(chat).expect("an entry");
    assert_ne!(after.session_id, before.session_id);
    assert!(after.was_auto_reset && !after.suspended && !after.resume_pending, "{after:?}");
    assert_eq!(after.auto_reset_reason, Some(ResetReason::Suspended));
    world.sees(chat, "Session automatically reset (suspended)");
    let told = world.model.requests()[asked].body().to_string();
    assert!(!told.contains("stuck") && told.matches("[System note:").count() == 1, "{told}");
}

#[test]
fn a_session_that_was_interrupted_three_times_in_a_row_starts_afresh() {
    let mut world = foreign_home(7, 3);
    world.start();
    assert!(world.entry(7).is_some_and(|entry| entry.suspended && entry.resume_pending));
    starts_afresh(&world, 7);
    assert_eq!(world.model.requests().len(), 1, "it was not resumed");
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    world.crash();
    world.start();
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended), "it counts once");
}

#[test]
fn a_session_that_was_interrupted_twice_goes_on_and_its_success_counts() {
    let mut world = foreign_home(7, 2);
    world.start();
    world.sees(7, "echo: [System note:");
    eventually("cleared", || world.mark(7).is_none().then_some(()));
    assert_eq!(world.failures(7), 0);
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    assert_eq!(world.entry(7).expect("an entry").session_id.as_str(), "20261115_181205_13f6a7af");
}

#[test]
fn three_stops_that_cut_the_same_turn_off_end_it_at_the_fourth_start() {
    type Cut = fn(&mut World);
    let cuts: [Cut; 3] =
        [|world| drop(world.leave(RESTART)), |world| drop(world.leave(Leave::Stop)), |world| world.crash()];
    for cut in cuts {
        let mut world = World::with(without_guard);
        let gate = world.thinks_long_about("stuck");
        world.telegram.push_text(7, 7, "stuck");
        for asked in 1..=3 {
            assert!(world.model.wait_requests(asked, SOON), "start {asked} asks again");
            eventually("at the gate", || (gate.waiting() > 0).then_some(()));
            cut(&mut world);
            assert!(gate.wait_gone(asked, SOON));
            world.start();
        }
        world.sees(7, "so I have stopped trying");
        assert_eq!(world.model.requests().len(), 3, "it is not asked again");
        assert!(world.read(|reader| reader.open_turns()).is_empty());
        starts_afresh(&world, 7);
    }
}

#[test]
fn a_good_turn_in_between_begins_the_count_anew() {
    let mut world = World::with(without_guard);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    for cut in 1..=2 {
        assert!(gate.wait(SOON));
        world.leave(RESTART);
        assert!(gate.wait_gone(cut, SOON));
        assert_eq!(world.failures(7), cut as u32);
        world.start();
    }
    gate.open();
    world.ends_with(7, "echo: ");
    eventually("cleared", || (world.failures(7) == 0).then_some(()));
    let gate = world.thinks_long_about("again");
    world.telegram.push_text(7, 7, "again");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    assert_eq!(world.failures(7), 1);
    gate.open();
    world.start();
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
    world.ends_with(7, "again");
}

#[test]
fn neither_a_stop_nor_a_crash_is_blamed_on_a_turn_that_only_waited() {
    let mut world = World::with(without_guard);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
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
    world.ends_with(7, "stuck");
    eventually("cleared", || (world.failures(7) == 0).then_some(()));
}

/// A crash a moment after a turn of chat 8 has ended; chat 7 is marked already.
fn crashed(mode: CrashRecovery) -> World {
    let mut world = World::idle(|setup| setup.lifetime.crash_recovery = mode);
    // A reason that the gateway does not resume by itself.
    let reason = ResumeReason::Other("power_cut".into());
    world.plant(&Planted { mark: Mark::now(reason), ..Planted::new(7) });
    world.start();
    world.telegram.push_text(8, 8, "hello");
    world.shows(8, &["echo: hello"]);
    world.owes_nothing();
    world.crash();
    world.start();
    world
}

#[test]
fn after_a_crash_recent_sessions_are_left_alone_suspended_or_marked_as_the_owner_wants() {
    for (mode, suspended, mark) in [
        (CrashRecovery::Journal, false, None),
        (CrashRecovery::Suspend, true, None),
        (CrashRecovery::Resume, false, Some("restart_interrupted")),
    ] {
        let world = crashed(mode);
        let other = world.entry(8).expect("an entry");
        assert_eq!((other.suspended, world.mark(8).as_deref()), (suspended, mark), "{mode:?}");
        let own = world.entry(7).expect("an entry");
        assert_eq!((own.suspended, world.mark(7).as_deref()), (false, Some("power_cut")), "{mode:?}");
    }
}

#[test]
fn after_a_clean_stop_nobody_is_touched() {
    for mode in [CrashRecovery::Suspend, CrashRecovery::Resume] {
        let mut world = World::with(|setup| setup.lifetime.crash_recovery = mode);
        world.telegram.push_text(8, 8, "hello");
        world.shows(8, &["echo: hello"]);
        world.restart();
        assert!(world.entry(8).is_some_and(|entry| !entry.suspended && !entry.resume_pending), "{mode:?}");
    }
}

#[test]
fn a_turn_that_a_crash_cut_off_goes_on_whatever_becomes_of_the_others() {
    for mode in [CrashRecovery::Journal, CrashRecovery::Suspend, CrashRecovery::Resume] {
        let mut world = World::with(|setup| setup.lifetime.crash_recovery = mode);
        let gate = world.thinks_long_about("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        world.crash();
        assert_eq!(world.mark(7), None, "nobody had time to mark it");
        gate.open();
        world.start();
        world.sees(7, "a gateway interruption");
        let asked = &world.model.requests()[1].last_user;
        assert!(asked.ends_with("\n\nslow"), "{asked}");
        eventually("cleared", || world.mark(7).is_none().then_some(()));
        assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
    }
}

#[test]
fn a_chat_that_merely_finished_before_a_crash_hears_nothing_of_it() {
    for mode in [CrashRecovery::Journal, CrashRecovery::Resume] {
        let mut world = World::with(|setup| setup.lifetime.crash_recovery = mode);
        world.telegram.push_text(8, 8, "hello");
        world.shows(8, &["echo: hello"]);
        world.owes_nothing();
        world.crash();
        world.start();
        world.telegram.push_text(9, 9, "are you there?");
        world.ends_with(9, "echo: are you there?");
        world.until("idle", |it| (it.active() == 0).then_some(()));
        assert_eq!(world.model.requests().len(), 2, "{mode:?}: a turn nobody asked for");
        assert_eq!(world.telegram.texts(8), ["echo: hello"], "{mode:?}");
        world.telegram.push_text(8, 8, "and now?");
        world.ends_with(8, "and now?");
        let told = world.model.requests()[2].body().to_string();
        assert!(told.contains("hello"), "{mode:?}: the history is kept");
    }
}

#[test]
fn as_many_sessions_work_as_may_and_our_own_words_wait_for_a_place() {
    let world = World::with(|setup| setup.lifetime.session_cap = Some(1));
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.telegram.push_text(8, 8, "hello");
    world.ends_with(8, "at the active session limit (1/1)");
    let mut inbound = crate::support::web("c1", "the build has ended");
    inbound.internal = true;
    let key = world.submit(inbound).expect("accepted");
    let mut view = world.runtime.block_on(world.handle().view(&key)).expect("a view");
    world.runtime.block_on(view.wait_for(|view| view.queued == 1)).expect("it waits");
    gate.open();
    let asked = |desk: &petasos_fakes::model::Desk| {
        desk.requests().any(|request| request.last_user == "the build has ended").then_some(())
    };
    assert!(world.model.wait_until(SOON, asked).is_some(), "it was turned away");
}
