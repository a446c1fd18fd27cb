//! `kill -9` again and again in one home, with messages arriving and a turn that takes the process down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Bench, assert_took_at_most, said};
use petasos_core::TurnId;
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};

const KILLS: i64 = 20;
const POISON: i64 = 666;
/// Its turns wait for a gate, so one of them is executing when the process dies.
const SLOW: i64 = 555;
/// The first answer after a restart, checked with `PETASOS_TIMED`.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// A start that has not answered by then hangs.
const HANGS: Duration = Duration::from_secs(10);
/// The wait that a notice names more than doubles from one to the next.
const MOST_NOTICES: usize = 4;
const ALL_ANSWERED: Duration = Duration::from_secs(60);

/// No message interrupts the turn before it, so each of them is answered.
const QUEUE: &str = "display: {busy_input_mode: queue}\n";
/// Short pauses.
const GUARDS: &str =
    "gateway:\n  restart_loop_guard: {stable_seconds: 1}\n  respawn_storm: {max_starts: 0}\n";

/// One second with short pauses, or as `PETASOS_KILL_INTERVAL_MS` says with the default settings.
fn interval() -> (Duration, String) {
    match std::env::var("PETASOS_KILL_INTERVAL_MS").ok().and_then(|it| it.parse().ok()) {
        Some(millis) => (Duration::from_millis(millis), QUEUE.into()),
        None => (Duration::from_secs(1), format!("{QUEUE}{GUARDS}")),
    }
}

/// Counts how often the model was asked about the poison message; the gate lets slow turns be answered.
fn poisonous_model(bench: &Bench) -> (Arc<AtomicUsize>, Arc<Gate>) {
    let (asked, never) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    let slow = Arc::new(Gate::new());
    let (count, held) = (asked.clone(), slow.clone());
    bench.model.respond(move |request| {
        let text = said(&request.last_user);
        let answer = Answer::text(format!("echo: {text}"));
        if text.contains("poison") {
            count.fetch_add(1, Ordering::SeqCst);
            return answer.gate(Point::Before, &never);
        }
        if text.contains("slow") { answer.gate(Point::Before, &held) } else { answer }
    });
    (asked, slow)
}

fn is_answered(bench: &Bench, chat: i64, text: &str) -> bool {
    let answer = format!("echo: {text}");
    bench.telegram.texts(chat).iter().any(|shown| shown.ends_with(&answer))
}

/// How often a chat was told that a turn is given up.
fn reports(bench: &Bench, chat: i64) -> usize {
    bench.telegram.texts(chat).iter().filter(|text| text.contains("I have stopped trying")).count()
}

fn is_kept(bench: &Bench, chat: i64) -> bool {
    bench.telegram.texts(chat).iter().any(|text| text.contains("Your message is kept"))
}

/// Waits until the condition holds. False: it did not in time.
fn within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn answers_or_reports_every_message_through_twenty_kills() {
    let (interval, settings) = interval();
    let mut bench = Bench::with(&settings);
    let (poison, slow) = poisonous_model(&bench);
    let mut deadly = 0;
    for kill in 1..=KILLS {
        let started = Instant::now();
        bench.launch();
        if kill == 1 {
            bench.telegram.push_text(POISON, POISON, "poison");
        }
        bench.telegram.push_text(SLOW, SLOW, format!("slow {kill}"));
        bench.telegram.push_text(kill, kill, format!("hello {kill}"));
        let kills = || poison.load(Ordering::SeqCst) > deadly;
        let answered = within(HANGS, || kills() || is_answered(&bench, kill, &format!("hello {kill}")));
        assert!(answered, "start {kill}: no answer within {:?}", started.elapsed());
        if !kills() {
            assert_took_at_most(FIRST_ANSWER, started);
        }
        within(interval.saturating_sub(started.elapsed()), kills);
        deadly = poison.load(Ordering::SeqCst);
        // Written when the gateway is about to go.
        bench.telegram.push_text(100 + kill, 100 + kill, format!("late {kill}"));
        bench.kill();
    }
    let mut started = Instant::now();
    slow.open();
    bench.launch();
    let done = |bench: &Bench| {
        reports(bench, POISON) == 1
            && (1..=KILLS).all(|kill| {
                is_answered(bench, kill, &format!("hello {kill}"))
                    && is_answered(bench, 100 + kill, &format!("late {kill}"))
            })
    };
    // The poison turn may still take the process down, until it is given up.
    while !done(&bench) {
        assert!(started.elapsed() < ALL_ANSWERED, "not answered: {}", unanswered(&bench));
        if poison.load(Ordering::SeqCst) > deadly {
            deadly = poison.load(Ordering::SeqCst);
            bench.kill();
            bench.launch();
            started = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    within(ALL_ANSWERED.saturating_sub(started.elapsed()), || is_settled(&bench));
    assert!(is_settled(&bench), "{}", bench.status());
    assert_eq!(poison.load(Ordering::SeqCst), 3, "the poison turn is tried three times");
    for chat in (1..=KILLS).chain(101..=100 + KILLS).chain([POISON, SLOW]) {
        let texts = bench.telegram.texts(chat);
        let mut answers: Vec<_> = texts.iter().filter(|text| text.starts_with("echo: ")).collect();
        answers.sort();
        let count = answers.len();
        answers.dedup();
        assert!(answers.len() == count && (count <= 1 || chat == SLOW), "chat {chat}: {texts:?}");
        let kept = texts.iter().filter(|text| text.contains("Your message is kept")).count();
        assert!(kept <= MOST_NOTICES, "chat {chat}: {texts:?}");
        assert!(reports(&bench, chat) == 0 || [POISON, SLOW].contains(&chat), "chat {chat}: {texts:?}");
    }
    bench.kill();
    check_slow(&bench);
}

#[test]
fn turn_that_executes_beside_a_poison_turn_at_every_crash_is_answered() {
    // The breaker by number of starts is off.
    let guards = "gateway:\n  restart_loop_guard: {max_restarts: 0, stable_seconds: 1}\n";
    let mut bench = Bench::with(guards);
    let (poison, slow) = poisonous_model(&bench);
    let asked = |bench: &Bench| {
        bench.model.requests().iter().filter(|request| said(&request.last_user).contains("slow")).count()
    };
    bench.telegram.push_text(POISON, POISON, "poison");
    bench.telegram.push_text(SLOW, SLOW, "slow");
    for crash in 1..=2 {
        bench.launch();
        let both = || poison.load(Ordering::SeqCst) == crash && asked(&bench) == crash;
        assert!(within(HANGS, both), "crash {crash}: {poison:?}, {}", asked(&bench));
        bench.kill();
    }
    bench.launch();
    assert!(within(HANGS, || is_kept(&bench, POISON)), "{:?}", bench.telegram.texts(POISON));
    bench.telegram.push_text(1, 1, "hello");
    assert!(within(HANGS, || is_answered(&bench, 1, "hello")));
    let alone = || poison.load(Ordering::SeqCst) == 3 && (is_kept(&bench, SLOW) || asked(&bench) == 3);
    assert!(within(HANGS, alone), "{poison:?}, {:?}", bench.telegram.texts(SLOW));
    bench.kill();
    slow.open();
    bench.launch();
    assert!(within(HANGS, || reports(&bench, POISON) == 1), "{:?}", bench.telegram.texts(POISON));
    let answered = within(ALL_ANSWERED, || is_answered(&bench, SLOW, "slow"));
    assert!(answered && reports(&bench, SLOW) == 0, "{:?}", bench.telegram.texts(SLOW));
    assert_eq!(poison.load(Ordering::SeqCst), 3);
    bench.kill();
}

/// Every slow message is in one answer, or in a turn whose end was reported.
fn check_slow(bench: &Bench) {
    let texts = bench.telegram.texts(SLOW);
    assert!(texts.iter().any(|text| text.contains("Your message is kept")), "{texts:?}");
    let store = petasos_store::Store::open(bench.database()).expect("a database");
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

fn is_settled(bench: &Bench) -> bool {
    let status = bench.status();
    let count = |path: &str| status.pointer(path).and_then(serde_json::Value::as_u64);
    ["/inbox/queued", "/inbox/running", "/outbox/due"].iter().all(|path| count(path) == Some(0))
}

fn unanswered(bench: &Bench) -> String {
    let chats = (1..=KILLS).chain(101..=100 + KILLS);
    let texts = chats.map(|chat| (chat, bench.telegram.texts(chat)));
    let open = texts.filter(|(_, texts)| !texts.iter().any(|text| text.contains("echo: ")));
    format!("{:?}, poison: {:?}", open.collect::<Vec<_>>(), bench.telegram.texts(POISON))
}
