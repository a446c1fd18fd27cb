//! Resuming the work of the previous process.

use std::time::Duration;

use petasos_core::access::{PlatformAccess, Strangers};
use petasos_core::journal::MessageOutcome;
use petasos_core::session::ResumeReason;
use petasos_core::transcript::Role;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::home::counts;

use super::stop::RESTART;
use crate::support::planted::{PlantedSession, ResumeMark, TranscriptTail};
use crate::support::{GatewayFixture, SOON, eventually, key, telegram};

const YESTERDAY: Duration = Duration::from_secs(24 * 3600);

fn marked(chat: i64) -> PlantedSession {
    PlantedSession { mark: ResumeMark::now(ResumeReason::RestartTimeout), ..PlantedSession::new(chat) }
}

fn interrupted_twice(world: &GatewayFixture, chat: i64) {
    let before = format!(r#"{{"{}":2}}"#, key(chat));
    std::fs::write(counts::path(world.home()), before).expect("a file");
}

#[test]
fn successful_resume_clears_mark_and_count() {
    let mut world = GatewayFixture::idle(|_| {});
    let session = world.plant(&marked(7));
    interrupted_twice(&world, 7);
    world.model.script(Answer::text("I am back."));
    world.start();
    world.expect_messages(7, &["I am back."]);
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
        "there is no message: {rows:?}"
    );
    world.restart();
    world.telegram.push_text(7, 7, "ping");
    world.expect_last_message(7, "echo: ping");
    assert_eq!(world.model.requests()[1].last_user, "ping", "it is resumed once");
}

#[test]
fn failed_turn_keeps_mark_and_count() {
    let failed = Answer::status(401, "");
    let cut_off = Answer::text("half a sent").finish("length");
    for (answer, want) in [(failed, "rejected the API key"), (cut_off, "cut off here")] {
        let mut world = GatewayFixture::idle(|_| {});
        world.plant(&marked(7));
        interrupted_twice(&world, 7);
        world.model.respond(move |_| answer.clone());
        world.start();
        world.expect_last_message(7, want);
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"), "{want}");
        assert_eq!(world.failures(7), 2, "{want}");
    }
}

#[test]
fn stopped_turn_keeps_mark_and_count() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&marked(7));
    interrupted_twice(&world, 7);
    let gate = world.model.gate(Point::Before);
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "/stop");
    world.expect_last_message(7, "Stopped");
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
    assert_eq!(world.failures(7), 2);
}

/// Waits until the connected platform has resumed all its candidates.
#[track_caller]
pub(super) fn hears(world: &GatewayFixture, chat: i64) {
    world.telegram.push_text(chat, chat, "are you there?");
    world.expect_last_message(chat, "echo: are you there?");
}

#[test]
fn does_not_resume_for_unauthorised_people() {
    let mut world = GatewayFixture::idle(|setup| {
        let users = vec!["8".to_owned()];
        let only = PlatformAccess { users, strangers: Some(Strangers::Ignore), ..PlatformAccess::default() };
        setup.access.allow_all = false;
        setup.access.platforms.insert(telegram(), only);
    });
    world.plant(&marked(7));
    world.plant(&PlantedSession { tail: TranscriptTail::OpenTurn, ..PlantedSession::new(9) });
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
fn resume_waits_until_platform_is_connected() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&marked(7));
    world.plant(&PlantedSession { tail: TranscriptTail::OpenTurn, ..PlantedSession::new(8) });
    world.telegram.down();
    world.start();
    world.send_web("c1", "are you there?");
    assert!(world.model.wait_requests(1, SOON));
    assert_eq!(world.model.requests()[0].last_user, "are you there?");
    world.until("idle", |it| (it.active() == 0).then_some(()));
    assert_eq!(world.model.requests().len(), 1);
    world.telegram.up().expect("up");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.expect_message(7, "echo: ");
    world.expect_message(8, "echo: ");
    assert_eq!(world.model.requests().len(), 3);
}

#[test]
fn resumed_turn_is_not_interrupted_by_messages() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&PlantedSession { tail: TranscriptTail::OpenTurn, ..PlantedSession::new(7) });
    let gate = world.hold_model_on("question before");
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "hurry");
    world.expect_last_message(7, "Queued for the next turn");
    hears(&world, 8);
    assert_eq!(gate.waiting(), 1, "it still runs");
    gate.open();
    world.expect_last_message(7, "echo: hurry");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].contains("the question before"), "{texts:?}");
}

#[test]
fn message_waits_for_resuming_session() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&marked(7));
    let gate = world.hold_model_on("[System note:");
    world.start();
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "hurry");
    world.expect_last_message(7, "Queued for the next turn");
    gate.open();
    world.expect_last_message(7, "echo: hurry");
    assert_eq!(world.model.requests().len(), 2, "{:?}", world.telegram.texts(7));
}

#[test]
fn resumes_marked_session_at_every_start() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&marked(7));
    world.telegram.down();
    for _ in 0..4 {
        world.start();
        world.crash();
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"), "it could not be resumed");
    }
    world.telegram.up().expect("up");
    world.start();
    world.expect_message(7, "echo: [System note:");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn reports_expired_turn_instead_of_resuming() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&PlantedSession { age: YESTERDAY, tail: TranscriptTail::OpenTurn, ..PlantedSession::new(7) });
    world.start();
    world.expect_last_message(7, "too long ago to continue without asking");
    assert!(world.read(|reader| reader.open_turns()).is_empty());
    assert_eq!(world.read(|reader| reader.settled(MessageOutcome::Dead, 10)).len(), 1);
    hears(&world, 8);
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(world.telegram.texts(7).len(), 1);
}

#[test]
fn resumes_old_turn_marked_by_recent_shutdown() {
    let mut world = GatewayFixture::idle(|_| {});
    let tail = TranscriptTail::OpenTurn;
    world.plant(&PlantedSession { age: YESTERDAY, tail, ..marked(7) });
    world.start();
    world.expect_last_message(7, "the question before");
    assert_eq!(world.count(7, "echo: "), 1);
}

#[test]
fn resumes_interrupted_turn_with_note() {
    let mut world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    gate.open();
    world.start();
    world.expect_message(7, "echo: [System note:");
    let asked = world.model.requests()[1].last_user.clone();
    assert!(asked.contains("a gateway restart") && asked.ends_with("\n\nslow"), "{asked}");
    assert_eq!(asked.matches("[System note:").count(), 1);
    assert!(!asked.contains("new message"), "{asked}");
    assert_eq!(world.transcript(7)[0], (Role::User, "slow".to_owned()));
    assert_eq!(world.mark(7), None);
}

#[test]
fn resumes_session_interrupted_during_resume() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&marked(7));
    let gate = world.hold_model_on("[System note:");
    world.start();
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    assert_eq!(world.failures(7), 1);
    gate.open();
    world.start();
    world.expect_message(7, "echo: [System note:");
    let asked = world.model.requests()[1].body().to_string();
    assert_eq!(asked.matches("[System note:").count(), 1, "{asked}");
    assert_eq!(world.transcript(7).len(), 3, "only the answer is added");
    eventually("cleared", || world.mark(7).is_none().then_some(()));
}

#[test]
fn page_shows_answer_after_restart_without_banner() {
    let mut world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("slow");
    let key = world.send_web("c1", "slow");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    let texts = |world: &GatewayFixture, role: Role| {
        world.read(|reader| {
            let session = reader.entry(&key)?.expect("an entry").session_id;
            let rows = reader.rows_last(&session, 100)?.into_iter().map(|row| row.message);
            Ok(rows.filter(|row| row.role == role).map(|row| row.content).collect::<Vec<_>>())
        })
    };
    gate.open();
    world.start();
    let answer = eventually("answered", || texts(&world, Role::Assistant).pop());
    assert!(answer.ends_with("slow"), "{answer}");
    assert_eq!(texts(&world, Role::User), ["slow"]);
    assert_eq!(texts(&world, Role::Notice), [""; 0]);
}
