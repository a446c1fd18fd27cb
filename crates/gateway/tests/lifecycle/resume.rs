//! What a start takes up from the process before it, and when.

use std::time::Duration;

use petasos_core::access::{PlatformAccess, Strangers};
use petasos_core::journal::Outcome;
use petasos_core::session::ResumeReason;
use petasos_core::transcript::Role;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::home::counts;

use super::stop::RESTART;
use crate::support::planted::{Mark, Planted, Tail};
use crate::support::{SOON, World, eventually, key, telegram};

const YESTERDAY: Duration = Duration::from_secs(24 * 3600);

fn marked(chat: i64) -> Planted {
    Planted { mark: Mark::now(ResumeReason::RestartTimeout), ..Planted::new(chat) }
}

fn interrupted_twice(world: &World, chat: i64) {
    let before = format!(r#"{{"{}":2}}"#, key(chat));
    std::fs::write(counts::path(world.home()), before).expect("a file");
}

#[test]
fn a_marked_session_goes_on_by_itself_and_a_good_turn_clears_the_mark_and_the_count() {
    let mut world = World::idle(|_| {});
    let session = world.plant(&marked(7));
    interrupted_twice(&world, 7);
    world.model.script(Answer::text("I am back."));
    world.start();
    world.shows(7, &["I am back."]);
    let entry = world.entry(7).expect("an entry");
    assert_eq!((entry.session_id, entry.resume_pending, entry.resume_reason), (session, false, None));
    assert_eq!(world.failures(7), 0);
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    let requests = world.model.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].last_user.starts_with("[System note:"), "{}", requests[0].last_user);
    assert!(!requests[0].last_user.contains("new message"));
    let rows = world.transcript(7);
    assert_eq!(rows.last(), Some(&(Role::Assistant, "I am back.".to_owned())));
    assert_eq!(
        rows.iter().filter(|(role, _)| *role == Role::User).count(),
        1,
        "nobody has written: {rows:?}"
    );
    world.restart();
    world.telegram.push_text(7, 7, "ping");
    world.ends_with(7, "echo: ping");
    assert_eq!(world.model.requests()[1].last_user, "ping", "it is resumed once");
}

#[test]
fn a_turn_that_ends_badly_keeps_the_mark_and_the_count() {
    let failed = Answer::status(401, "");
    let cut_off = Answer::text("half a sent").finish("length");
    for (answer, want) in [(failed, "refused our API key"), (cut_off, "cut off here")] {
        let mut world = World::idle(|_| {});
        world.plant(&marked(7));
        interrupted_twice(&world, 7);
        world.model.respond(move |_| answer.clone());
        world.start();
        world.ends_with(7, want);
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"), "{want}");
        assert_eq!(world.failures(7), 2, "{want}");
    }
}

#[test]
fn a_turn_that_its_author_stops_keeps_the_mark_and_the_count() {
    let mut world = World::idle(|_| {});
    world.plant(&marked(7));
    interrupted_twice(&world, 7);
    let gate = world.model.gate(Point::Before);
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "/stop");
    world.ends_with(7, "Stopped");
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
    assert_eq!(world.failures(7), 2);
}

/// Answered once everything that a connected platform resumes has been handed on.
#[track_caller]
pub(super) fn hears(world: &World, chat: i64) {
    world.telegram.push_text(chat, chat, "are you there?");
    world.ends_with(chat, "echo: are you there?");
}

#[test]
fn whoever_may_not_talk_to_us_any_more_is_not_written_to() {
    let mut world = World::idle(|setup| {
        let users = vec!["8".to_owned()];
        let only = PlatformAccess { users, strangers: Some(Strangers::Ignore), ..PlatformAccess::default() };
        setup.access.allow_all = false;
        setup.access.platforms.insert(telegram(), only);
    });
    world.plant(&marked(7));
    world.plant(&Planted { tail: Tail::OpenTurn, ..Planted::new(9) });
    let before = world.read(|reader| reader.newest());
    world.start();
    hears(&world, 8);
    assert_eq!(world.read(|reader| reader.newest()).0, before.0 + 1, "nothing but the message");
    assert_eq!(world.model.requests().len(), 1);
    assert!(world.telegram.texts(7).is_empty() && world.telegram.texts(9).is_empty());
    assert!(world.read(|reader| reader.open_turns()).is_empty());
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
}

#[test]
fn what_belongs_to_a_platform_waits_until_it_is_connected() {
    let mut world = World::idle(|_| {});
    world.plant(&marked(7));
    world.plant(&Planted { tail: Tail::OpenTurn, ..Planted::new(8) });
    world.telegram.down();
    world.start();
    world.say("c1", "are you there?");
    assert!(world.model.wait_requests(1, SOON));
    assert_eq!(world.model.requests()[0].last_user, "are you there?");
    world.until("idle", |it| (it.active() == 0).then_some(()));
    assert_eq!(world.model.requests().len(), 1);
    world.telegram.up().expect("up");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.sees(7, "echo: ");
    world.sees(8, "echo: ");
    assert_eq!(world.model.requests().len(), 3);
}

#[test]
fn a_resumed_turn_is_not_interrupted_by_what_its_chat_says_and_holds_nobody_else_up() {
    let mut world = World::idle(|_| {});
    world.plant(&Planted { tail: Tail::OpenTurn, ..Planted::new(7) });
    let gate = world.thinks_long_about("question before");
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "hurry");
    world.ends_with(7, "Queued for the next turn");
    hears(&world, 8);
    assert_eq!(gate.waiting(), 1, "it still runs");
    gate.open();
    world.ends_with(7, "echo: hurry");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].contains("the question before"), "{texts:?}");
}

#[test]
fn a_message_to_a_marked_session_that_is_being_taken_up_waits_for_it() {
    let mut world = World::idle(|_| {});
    world.plant(&marked(7));
    let gate = world.thinks_long_about("[System note:");
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "hurry");
    world.ends_with(7, "Queued for the next turn");
    gate.open();
    world.ends_with(7, "echo: hurry");
    assert_eq!(world.model.requests().len(), 2, "{:?}", world.telegram.texts(7));
}

#[test]
fn marked_session_goes_on_at_every_start_however_many_there_were() {
    let mut world = World::idle(|_| {});
    world.plant(&marked(7));
    world.telegram.down();
    for _ in 0..4 {
        world.start();
        world.crash();
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"), "nobody could take it up");
    }
    world.telegram.up().expect("up");
    world.start();
    world.sees(7, "echo: [System note:");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn a_turn_that_was_left_too_long_ago_is_reported_and_not_run() {
    let mut world = World::idle(|_| {});
    world.plant(&Planted { age: YESTERDAY, tail: Tail::OpenTurn, ..Planted::new(7) });
    world.start();
    world.ends_with(7, "too long ago to go on by myself");
    assert!(world.read(|reader| reader.open_turns()).is_empty());
    assert_eq!(world.read(|reader| reader.settled(Outcome::Dead, 10)).len(), 1);
    hears(&world, 8);
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(world.telegram.texts(7).len(), 1);
}

#[test]
fn an_old_turn_that_a_stop_marked_just_now_goes_on() {
    let mut world = World::idle(|_| {});
    let tail = Tail::OpenTurn;
    world.plant(&Planted { age: YESTERDAY, tail, ..marked(7) });
    world.start();
    world.ends_with(7, "the question before");
    assert_eq!(world.count(7, "echo: "), 1);
}

#[test]
fn an_interrupted_turn_goes_on_where_it_was_and_is_told_so() {
    let mut world = World::new(|_| {});
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    gate.open();
    world.start();
    world.sees(7, "echo: [System note:");
    let asked = world.model.requests()[1].last_user.clone();
    assert!(asked.contains("a gateway restart") && asked.ends_with("\n\nslow"), "{asked}");
    assert_eq!(asked.matches("[System note:").count(), 1);
    assert!(!asked.contains("new message"), "{asked}");
    assert_eq!(world.transcript(7)[0], (Role::User, "slow".to_owned()));
    assert_eq!(world.mark(7), None);
}

#[test]
fn a_session_that_was_being_taken_up_when_it_was_cut_off_again_is_taken_up_once_more() {
    let mut world = World::idle(|_| {});
    world.plant(&marked(7));
    let gate = world.thinks_long_about("[System note:");
    world.start();
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    assert_eq!(world.failures(7), 1);
    gate.open();
    world.start();
    world.sees(7, "echo: [System note:");
    let asked = world.model.requests()[1].body().to_string();
    assert_eq!(asked.matches("[System note:").count(), 1, "{asked}");
    assert_eq!(world.transcript(7).len(), 3, "an answer, and nothing that nobody said");
    eventually("cleared", || world.mark(7).is_none().then_some(()));
}

#[test]
fn the_page_reads_the_answer_after_the_restart_and_no_stale_banner() {
    let mut world = World::new(|_| {});
    let gate = world.thinks_long_about("slow");
    let key = world.say("c1", "slow");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    let said = |world: &World, role: Role| {
        world.read(|reader| {
            let session = reader.entry(&key)?.expect("an entry").session_id;
            let rows = reader.rows_last(&session, 100)?.into_iter().map(|said| said.message);
            Ok(rows.filter(|row| row.role == role).map(|row| row.content).collect::<Vec<_>>())
        })
    };
    gate.open();
    world.start();
    let answer = eventually("answered", || said(&world, Role::Assistant).pop());
    assert!(answer.ends_with("slow"), "{answer}");
    assert_eq!(said(&world, Role::User), ["slow"]);
    assert_eq!(said(&world, Role::Notice), [""; 0]);
}
