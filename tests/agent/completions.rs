//! Ends of background processes, many of them, while everything else happens: each is told once, in the conversation
//! that it belongs to, or listed with the reason why it is not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Bench, fine, said, wait_for_file};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use rusqlite::Connection;
use serde_json::json;

const CONFIG: &str = "terminal:\n  enabled: true\n  login_shell: false\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";
/// How long all of it may take; it took 37 s on two cores that had three times as much to do.
const PATIENCE: Duration = Duration::from_secs(300);
/// Many, so that no conversation becomes long: a model is told all of it with every end.
const CHATS: i64 = 50;
/// Processes that one message starts.
const EACH: usize = 10;

/// Processes of the large test: a thousand, or as many as `PETASOS_PROCESSES` says.
fn processes() -> usize {
    std::env::var("PETASOS_PROCESSES").ok().and_then(|it| it.parse().ok()).unwrap_or(1_000)
}

/// Dice that fall the same way every time.
fn roll(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn background(command: &str) -> serde_json::Value {
    json!({"command": command, "background": true, "notify_on_complete": true})
}

/// `start <chat> <number>` starts processes of that chat; `run <command>` starts one; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
    let said = said(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("done");
    }
    if let Some(command) = said.strip_prefix("run ") {
        return Answer::tool("terminal", background(command));
    }
    let Some((chat, number)) = said.strip_prefix("start ").and_then(|rest| rest.split_once(' ')) else {
        return Answer::text(format!("heard: {said}"));
    };
    let mut dice = number.parse::<u64>().expect("a number").wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..EACH).fold(Answer::text("starting"), |answer, at| {
        let rest = roll(&mut dice) % 3_000;
        let command =
            format!("sleep {}.{:03}; echo chat{chat} no{number}-{at} end", rest / 1000, rest % 1000);
        answer.and_tool("terminal", background(&command))
    })
}

fn count(bench: &Bench, question: &str) -> usize {
    let store = Connection::open(bench.database()).expect("a store");
    store.query_row(question, [], |row| row.get::<_, i64>(0)).expect("a count") as usize
}

const STARTED: &str = "SELECT count(*) FROM processes WHERE pid IS NOT NULL";
/// Processes that run, ends that are not told, messages and answers that are not dealt with.
const OPEN: &str = "SELECT (SELECT count(*) FROM processes WHERE ended_at IS NULL)
     + (SELECT count(*) FROM completions WHERE state IN ('queued', 'delivered'))
     + (SELECT count(*) FROM inbox WHERE state IN ('queued', 'claimed'))
     + (SELECT count(*) FROM outbox WHERE state NOT IN ('done', 'dead'))";

#[track_caller]
fn until(bench: &Bench, what: &str, mut look: impl FnMut(&Bench) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look(bench) {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Has more and more processes started, until there are so many. Calls that a kill cut off are not made again, so others
/// take their place.
#[track_caller]
fn grow(bench: &Bench, asked: &mut usize, goal: usize) {
    until(bench, "started", |bench| {
        if count(
            bench,
            "SELECT count(*) FROM inbox WHERE state <> 'settled' AND message NOT LIKE '%completion:proc%'",
        ) < 16
        {
            let chat = 1 + (*asked as i64) % CHATS;
            *asked += 1;
            bench.telegram.push_text(chat, chat, format!("/queue start {chat} {asked}"));
        }
        count(bench, STARTED) >= goal
    });
}

#[test]
fn a_thousand_ends_through_kills_outages_drains_and_long_turns_are_each_told_once_to_their_own_chat() {
    let all = processes();
    let mut bench = Bench::with(CONFIG);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    bench.model.respond(move |request| {
        let answer = obey(request);
        if said(&request.last_user) == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    bench.start();
    let mut asked = 0;
    grow(&bench, &mut asked, all / 10);
    // Busy: one conversation is in the middle of a long turn from here on.
    bench.telegram.push_text(3, 3, "think");
    assert!(gate.wait(crate::support::SOON), "nobody thinks");
    grow(&bench, &mut asked, all / 5);
    bench.kill();
    bench.start();
    // Offline: the platform is away while processes end.
    grow(&bench, &mut asked, all * 2 / 5);
    bench.telegram.down();
    let live = "SELECT count(*) FROM processes WHERE ended_at IS NULL";
    let most = count(&bench, live) / 2;
    until(&bench, "ended meanwhile", |bench| count(bench, live) <= most);
    // Killed while it is away, too.
    bench.kill();
    bench.launch();
    bench.telegram.up().expect("up");
    grow(&bench, &mut asked, all * 4 / 5);
    // Draining: what ends is told all the same.
    fine(&bench.run(&["drain"]));
    let told = "SELECT count(*) FROM completions WHERE state = 'consumed'";
    let before = count(&bench, told);
    until(&bench, "told while draining", |bench| count(bench, told) > before);
    fine(&bench.run(&["resume"]));
    gate.open();
    grow(&bench, &mut asked, all);
    until(&bench, "dealt with", |bench| count(bench, OPEN) == 0);
    bench.settle();
    each_is_told_once(&bench);
}

/// Every process has one message in the transcript of its own chat, and its words are in no other chat.
#[track_caller]
fn each_is_told_once(bench: &Bench) {
    let store = Connection::open(bench.database()).expect("a store");
    let mut rows = store
        .prepare(
            "SELECT p.id, p.session_key, m.session_key, m.count FROM processes p LEFT JOIN (
                 SELECT substr(content, 32, 17) AS id, session_key, count(*) AS count FROM messages
                 JOIN (SELECT DISTINCT session, session_key FROM processes) s ON s.session = messages.session
                 WHERE role = 'user' AND content LIKE '[IMPORTANT: Background process %' GROUP BY 1, 2) m ON m.id = p.id",
        )
        .expect("a question");
    let found = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    let found: Vec<(String, String, Option<String>, Option<i64>)> =
        found.expect("answers").collect::<Result<_, _>>().expect("rows");
    assert!(found.len() >= processes(), "{} processes", found.len());
    let mut own: HashMap<String, String> = HashMap::new();
    for (id, key, told_to, times) in found {
        assert_eq!((told_to.as_deref(), times), (Some(key.as_str()), Some(1)), "{id}");
        own.insert(id, key);
    }
    let mut shown: HashMap<String, usize> = HashMap::new();
    for chat in 1..=CHATS {
        for text in bench.telegram.texts(chat) {
            let Some(at) = text.find("Background process proc_") else { continue };
            let id = text[at + 19..at + 36].to_owned();
            assert_eq!(own.get(&id), Some(&format!("agent:main:telegram:dm:{chat}")), "{id} in chat {chat}");
            let marked = text.contains("Recovered reply");
            *shown.entry(id).or_default() += usize::from(!marked);
        }
    }
    assert!(shown.values().all(|times| *times <= 1), "an unmarked copy");
}

#[test]
fn what_a_conversation_that_was_ended_has_started_is_told_to_the_chat_and_listed() {
    let mut bench = Bench::with(CONFIG);
    bench.model.respond(obey);
    bench.start();
    let flag = bench.home.path().join("go");
    bench.telegram.push_text(7, 7, format!("run {}", wait_for_file(&flag)));
    assert_eq!(bench.wait_messages(7, 1), ["done"]);
    bench.telegram.push_text(7, 7, "/new");
    bench.wait_messages(7, 2);
    let asked = bench.model.look(|desk| desk.request_count());
    std::fs::write(&flag, "").expect("a flag");
    let texts = bench.wait_messages(7, 3);
    assert!(texts[2].contains("From an earlier conversation: background process proc_"), "{texts:?}");
    assert!(texts[2].contains("has ended (exit code 0)"), "{texts:?}");
    bench.settle();
    let status = bench.status();
    let untold = status["untold"].as_array().expect("a list");
    assert_eq!((untold.len(), &untold[0]["undeliverable"]), (1, &json!(true)), "{untold:?}");
    assert_eq!(untold[0]["reason"], "the conversation it was started in has ended");
    let shown = fine(&bench.run(&["status"]));
    assert!(shown.contains("undeliverable, the conversation it was started in has ended"), "{shown}");
    assert_eq!(bench.model.look(|desk| desk.request_count()), asked, "the new conversation is not bothered");
    bench.kill();
    bench.start();
    bench.settle();
    assert_eq!(bench.telegram.texts(7).len(), 3, "once");
}

#[test]
fn what_belongs_to_a_platform_that_was_taken_away_is_listed_and_waits_for_it() {
    let mut bench = Bench::setup().telegram().discord().with(CONFIG).build();
    bench.model.respond(obey);
    bench.start();
    let flag = bench.home.path().join("go");
    bench.telegram.push_text(7, 7, format!("run {}", wait_for_file(&flag)));
    assert_eq!(bench.wait_messages(7, 1), ["done"]);
    bench.settle();
    bench.kill();
    let path = bench.home.path().join("config.yaml");
    let with = std::fs::read_to_string(&path).expect("a configuration");
    let without = with.replacen("telegram:\n    enabled: true", "telegram:\n    enabled: false", 1);
    assert_ne!(with, without);
    std::fs::write(&path, without).expect("written");
    std::fs::write(&flag, "").expect("a flag");
    bench.launch();
    until(&bench, "listed", |bench| {
        let out = bench.run(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["untold"][0]["reason"] == "telegram is not set up"
    });
    assert_eq!(bench.status()["untold"][0]["undeliverable"], false);
    bench.kill();
    std::fs::write(&path, with).expect("written");
    bench.start();
    let texts = bench.wait_messages(7, 2);
    assert!(texts[1].contains("completed normally (exit code 0)"), "{texts:?}");
    bench.settle();
    assert_eq!(bench.status()["untold"], json!([]));
    assert_eq!(bench.telegram.texts(7).len(), 2);
}
