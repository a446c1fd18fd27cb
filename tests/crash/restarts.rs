//! Repeated `kill -9` in one home, with arriving messages and a poison turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{ProgramFixture, assert_took_at_most, user_text};
use petasos_core::TurnId;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::{Gate, wait};
use petasos_runtime::clock;

const KILLS: i64 = 20;
const POISON: i64 = 666;
/// Its turns wait for a gate, so one of them is executing at every kill.
const SLOW: i64 = 555;
/// Limit for the first answer after a restart, checked with `PETASOS_TIMED`.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait in each notice is more than twice the previous one.
const MOST_NOTICES: usize = 4;
const ALL_ANSWERED: Duration = Duration::from_secs(60);

/// Messages wait for the turn before them, so each gets its own answer.
const QUEUE: &str = "display: {busy_input_mode: queue}\n";
const SHORT_PAUSES: &str =
    "gateway:\n  restart_loop_guard: {stable_seconds: 1}\n  respawn_storm: {max_starts: 0}\n";

/// One second with short pauses, or `PETASOS_KILL_INTERVAL_MS` with the default settings.
fn interval() -> (Duration, String) {
    match std::env::var("PETASOS_KILL_INTERVAL_MS").ok().and_then(|it| it.parse().ok()) {
        Some(millis) => (Duration::from_millis(millis), QUEUE.into()),
        None => (Duration::from_secs(1), format!("{QUEUE}{SHORT_PAUSES}")),
    }
}

/// Returns the count of model calls for the poison message, and the gate of the slow turns.
fn set_up_poison_model(fixture: &ProgramFixture) -> (Arc<AtomicUsize>, Arc<Gate>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let never = Gate::new();
    let slow = Arc::new(Gate::new());
    let count = asked.clone();
    let held = slow.clone();
    fixture.model.respond(move |request| {
        let text = user_text(&request.last_user);
        let answer = Answer::text(format!("echo: {text}"));
        if text.contains("poison") {
            count.fetch_add(1, Ordering::SeqCst);
            return answer.gate(Point::Before, &never);
        }
        if text.contains("slow") { answer.gate(Point::Before, &held) } else { answer }
    });
    (asked, slow)
}

fn is_answered(fixture: &ProgramFixture, chat: i64, text: &str) -> bool {
    let answer = format!("echo: {text}");
    fixture.telegram.texts(chat).iter().any(|shown| shown.ends_with(&answer))
}

fn give_up_notices(fixture: &ProgramFixture, chat: i64) -> usize {
    fixture.telegram.texts(chat).iter().filter(|text| text.contains("I have stopped trying")).count()
}

fn is_kept(fixture: &ProgramFixture, chat: i64) -> bool {
    fixture.telegram.texts(chat).iter().any(|text| text.contains("Your message is kept"))
}

fn within(time: Duration, condition: impl FnMut() -> bool) -> bool {
    wait::poll(time, condition).is_some()
}

#[test]
fn answers_or_reports_every_message_through_twenty_kills() {
    let (interval, settings) = interval();
    let mut fixture = ProgramFixture::with_config(&settings);
    let (poison, slow) = set_up_poison_model(&fixture);
    let mut deadly = 0;
    for kill in 1..=KILLS {
        let started = clock::monotonic();
        fixture.launch();
        if kill == 1 {
            fixture.telegram.push_text(POISON, POISON, "poison");
        }
        fixture.telegram.push_text(SLOW, SLOW, format!("slow {kill}"));
        fixture.telegram.push_text(kill, kill, format!("hello {kill}"));
        let kills = || poison.load(Ordering::SeqCst) > deadly;
        let answered =
            within(START_TIMEOUT, || kills() || is_answered(&fixture, kill, &format!("hello {kill}")));
        assert!(answered, "start {kill}: no answer within {:?}", started.elapsed());
        if !kills() {
            assert_took_at_most(FIRST_ANSWER, started);
        }
        within(interval.saturating_sub(started.elapsed()), kills);
        deadly = poison.load(Ordering::SeqCst);
        // Arrives immediately before the kill.
        fixture.telegram.push_text(100 + kill, 100 + kill, format!("late {kill}"));
        fixture.kill();
    }
    let mut started = clock::monotonic();
    slow.open();
    fixture.launch();
    let done = |fixture: &ProgramFixture| {
        give_up_notices(fixture, POISON) == 1
            && (1..=KILLS).all(|kill| {
                is_answered(fixture, kill, &format!("hello {kill}"))
                    && is_answered(fixture, 100 + kill, &format!("late {kill}"))
            })
    };
    // The poison turn may still kill the process, until it is given up.
    loop {
        let kills = || poison.load(Ordering::SeqCst) > deadly;
        let progress = within(ALL_ANSWERED.saturating_sub(started.elapsed()), || done(&fixture) || kills());
        assert!(progress, "not answered: {}", unanswered(&fixture));
        if done(&fixture) {
            break;
        }
        deadly = poison.load(Ordering::SeqCst);
        fixture.kill();
        fixture.launch();
        started = clock::monotonic();
    }
    within(ALL_ANSWERED.saturating_sub(started.elapsed()), || is_settled(&fixture));
    assert!(is_settled(&fixture), "{}", fixture.status());
    assert_eq!(poison.load(Ordering::SeqCst), 3, "the poison turn is tried three times");
    for chat in (1..=KILLS).chain(101..=100 + KILLS).chain([POISON, SLOW]) {
        let texts = fixture.telegram.texts(chat);
        let mut answers: Vec<_> = texts.iter().filter(|text| text.starts_with("echo: ")).collect();
        answers.sort();
        let count = answers.len();
        answers.dedup();
        assert!(answers.len() == count && (count <= 1 || chat == SLOW), "chat {chat}: {texts:?}");
        let kept = texts.iter().filter(|text| text.contains("Your message is kept")).count();
        assert!(kept <= MOST_NOTICES, "chat {chat}: {texts:?}");
        assert!(
            give_up_notices(&fixture, chat) == 0 || [POISON, SLOW].contains(&chat),
            "chat {chat}: {texts:?}"
        );
    }
    fixture.kill();
    assert_slow_turns_settled(&fixture);
}

#[test]
fn answers_turn_that_runs_beside_a_poison_turn() {
    // The restart breaker by number of starts is off.
    let guards = "gateway:\n  restart_loop_guard: {max_restarts: 0, stable_seconds: 1}\n";
    let mut fixture = ProgramFixture::with_config(guards);
    let (poison, slow) = set_up_poison_model(&fixture);
    let asked = |fixture: &ProgramFixture| {
        fixture
            .model
            .requests()
            .iter()
            .filter(|request| user_text(&request.last_user).contains("slow"))
            .count()
    };
    fixture.telegram.push_text(POISON, POISON, "poison");
    fixture.telegram.push_text(SLOW, SLOW, "slow");
    for crash in 1..=2 {
        fixture.launch();
        let both = || poison.load(Ordering::SeqCst) == crash && asked(&fixture) == crash;
        assert!(within(START_TIMEOUT, both), "crash {crash}: {poison:?}, {}", asked(&fixture));
        fixture.kill();
    }
    fixture.launch();
    assert!(within(START_TIMEOUT, || is_kept(&fixture, POISON)), "{:?}", fixture.telegram.texts(POISON));
    fixture.telegram.push_text(1, 1, "hello");
    assert!(within(START_TIMEOUT, || is_answered(&fixture, 1, "hello")));
    let alone = || poison.load(Ordering::SeqCst) == 3 && (is_kept(&fixture, SLOW) || asked(&fixture) == 3);
    assert!(within(START_TIMEOUT, alone), "{poison:?}, {:?}", fixture.telegram.texts(SLOW));
    fixture.kill();
    slow.open();
    fixture.launch();
    assert!(
        within(START_TIMEOUT, || give_up_notices(&fixture, POISON) == 1),
        "{:?}",
        fixture.telegram.texts(POISON)
    );
    let answered = within(ALL_ANSWERED, || is_answered(&fixture, SLOW, "slow"));
    assert!(answered && give_up_notices(&fixture, SLOW) == 0, "{:?}", fixture.telegram.texts(SLOW));
    assert_eq!(poison.load(Ordering::SeqCst), 3);
    fixture.kill();
}

/// Every slow message is in one answer, or in a turn whose failure was reported.
fn assert_slow_turns_settled(fixture: &ProgramFixture) {
    let texts = fixture.telegram.texts(SLOW);
    assert!(texts.iter().any(|text| text.contains("Your message is kept")), "{texts:?}");
    let store = petasos_store::Store::open(fixture.database()).expect("a database");
    let mut reported = Vec::new();
    for notice in texts.iter().filter(|text| text.contains("I have stopped trying")) {
        let number = notice.split("/retry ").nth(1).and_then(|rest| rest.split(' ').next());
        let turn = TurnId(number.and_then(|number| number.parse().ok()).expect("a number"));
        let given_up = store.turn(turn).expect("readable").expect("a turn").turn;
        let asked = given_up.inbox.into_iter().map(|id| store.pending(id).expect("readable"));
        reported.extend(asked.flatten().map(|pending| pending.inbound.text));
    }
    for kill in 1..=KILLS {
        let asked = format!("slow {kill}");
        let line = |line: &str| line.strip_prefix("echo: ").unwrap_or(line) == asked;
        let answers: Vec<_> = texts.iter().filter(|text| text.lines().any(line)).collect();
        let unmarked = answers.iter().filter(|text| text.starts_with("echo: ")).count();
        let known = !answers.is_empty() || reported.contains(&asked);
        assert!(known && unmarked <= 1, "{asked}: {texts:?}, reported: {reported:?}");
    }
}

fn is_settled(fixture: &ProgramFixture) -> bool {
    let status = fixture.status();
    let count = |path: &str| status.pointer(path).and_then(serde_json::Value::as_u64);
    ["/inbox/queued", "/inbox/running", "/outbox/due"].iter().all(|path| count(path) == Some(0))
}

fn unanswered(fixture: &ProgramFixture) -> String {
    let chats = (1..=KILLS).chain(101..=100 + KILLS);
    let texts = chats.map(|chat| (chat, fixture.telegram.texts(chat)));
    let open = texts.filter(|(_, texts)| !texts.iter().any(|text| text.contains("echo: ")));
    format!("{:?}, poison: {:?}", open.collect::<Vec<_>>(), fixture.telegram.texts(POISON))
}
