//! Background completions under load and faults: each is reported once in its session, or listed with a reason.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{ProgramFixture, expect_success, user_text, wait_for_file};
use petasos_fakes::model::{Answer, ChatRequest, Point};
use petasos_fakes::{Gate, wait};
use rusqlite::Connection;
use serde_json::json;

const CONFIG: &str = "terminal:\n  enabled: true\n  sandbox: 'off'\n  login_shell: false\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";
/// The test took 37 s on two cores under a threefold load.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Many chats keep transcripts short: every completion sends the whole transcript to the model.
const CHATS: i64 = 50;
const PROCESSES_PER_MESSAGE: usize = 10;

/// Number of processes: 1,000, or `PETASOS_PROCESSES`.
fn processes() -> usize {
    std::env::var("PETASOS_PROCESSES").ok().and_then(|it| it.parse().ok()).unwrap_or(1_000)
}

/// Deterministic xorshift generator.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn background(command: &str) -> serde_json::Value {
    json!({"command": command, "background": true, "notify_on_complete": true})
}

/// `start <chat> <number>` starts processes for that chat, `run <command>` starts one; other text is echoed.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let said = user_text(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("done");
    }
    if let Some(command) = said.strip_prefix("run ") {
        return Answer::tool("terminal", background(command));
    }
    let Some((chat, number)) = said.strip_prefix("start ").and_then(|rest| rest.split_once(' ')) else {
        return Answer::text(format!("heard: {said}"));
    };
    let mut random = number.parse::<u64>().expect("a number").wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..PROCESSES_PER_MESSAGE).fold(Answer::text("starting"), |answer, at| {
        let rest = next_random(&mut random) % 3_000;
        let command =
            format!("sleep {}.{:03}; echo chat{chat} no{number}-{at} end", rest / 1000, rest % 1000);
        answer.and_tool("terminal", background(&command))
    })
}

fn count(fixture: &ProgramFixture, question: &str) -> usize {
    let store = Connection::open(fixture.database()).expect("a store");
    store.query_row(question, [], |row| row.get::<_, i64>(0)).expect("a count") as usize
}

const STARTED: &str = "SELECT count(*) FROM processes WHERE pid IS NOT NULL";
/// Running processes, unreported completions, open messages and undelivered answers.
const OPEN: &str = "SELECT (SELECT count(*) FROM processes WHERE ended_at IS NULL)
     + (SELECT count(*) FROM completions WHERE state IN ('queued', 'delivered'))
     + (SELECT count(*) FROM inbox WHERE state IN ('queued', 'claimed'))
     + (SELECT count(*) FROM outbox WHERE state NOT IN ('done', 'dead'))";

#[track_caller]
fn until(fixture: &ProgramFixture, description: &str, mut condition: impl FnMut(&ProgramFixture) -> bool) {
    wait::eventually(description, TIMEOUT, || condition(fixture));
}

/// Requests processes until `goal` have started. A kill interrupts some requests for good, so more are sent.
#[track_caller]
fn grow(fixture: &ProgramFixture, asked: &mut usize, goal: usize) {
    until(fixture, "started", |fixture| {
        if count(
            fixture,
            "SELECT count(*) FROM inbox WHERE state <> 'settled' AND message NOT LIKE '%completion:proc%'",
        ) < 16
        {
            let chat = 1 + (*asked as i64) % CHATS;
            *asked += 1;
            fixture.telegram.push_text(chat, chat, format!("/queue start {chat} {asked}"));
        }
        count(fixture, STARTED) >= goal
    });
}

#[test]
fn thousand_completions_survive_faults_and_are_reported_once() {
    let all = processes();
    let mut fixture = ProgramFixture::with_config(CONFIG);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    fixture.model.respond(move |request| {
        let answer = scripted_answer(request);
        if user_text(&request.last_user) == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    fixture.start();
    let mut asked = 0;
    grow(&fixture, &mut asked, all / 10);
    // One session is busy with a long turn from here on.
    fixture.telegram.push_text(3, 3, "think");
    assert!(gate.wait(crate::support::SOON), "the model is not called");
    grow(&fixture, &mut asked, all / 5);
    fixture.kill();
    fixture.start();
    // Processes end during an outage of the platform.
    grow(&fixture, &mut asked, all * 2 / 5);
    fixture.telegram.down();
    let live = "SELECT count(*) FROM processes WHERE ended_at IS NULL";
    let most = count(&fixture, live) / 2;
    until(&fixture, "ended meanwhile", |fixture| count(fixture, live) <= most);
    // A kill during the outage.
    fixture.kill();
    fixture.launch();
    fixture.telegram.up().expect("up");
    grow(&fixture, &mut asked, all * 4 / 5);
    // Completions are reported during a drain.
    expect_success(&fixture.run(&["drain"]));
    let reported = "SELECT count(*) FROM completions WHERE state = 'consumed'";
    let before = count(&fixture, reported);
    until(&fixture, "reported while draining", |fixture| count(fixture, reported) > before);
    expect_success(&fixture.run(&["resume"]));
    gate.open();
    grow(&fixture, &mut asked, all);
    until(&fixture, "all settled", |fixture| count(fixture, OPEN) == 0);
    fixture.wait_idle();
    assert_each_reported_once(&fixture);
}

/// Every process has one message in the transcript of its own chat and none elsewhere.
#[track_caller]
fn assert_each_reported_once(fixture: &ProgramFixture) {
    let store = Connection::open(fixture.database()).expect("a store");
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
        for text in fixture.telegram.texts(chat) {
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
fn completion_of_ended_session_is_reported_to_chat_and_listed() {
    let mut fixture = ProgramFixture::with_config(CONFIG);
    fixture.model.respond(scripted_answer);
    fixture.start();
    let flag = fixture.home.path().join("go");
    fixture.telegram.push_text(7, 7, format!("run {}", wait_for_file(&flag)));
    assert_eq!(fixture.wait_messages(7, 1), ["done"]);
    fixture.telegram.push_text(7, 7, "/new");
    fixture.wait_messages(7, 2);
    let asked = fixture.model.read(|state| state.request_count());
    std::fs::write(&flag, "").expect("a flag");
    let texts = fixture.wait_messages(7, 3);
    assert!(texts[2].contains("From an earlier conversation: background process proc_"), "{texts:?}");
    assert!(texts[2].contains("has ended (exit code 0)"), "{texts:?}");
    fixture.wait_idle();
    let status = fixture.status();
    let untold = status["untold"].as_array().expect("a list");
    assert_eq!((untold.len(), &untold[0]["undeliverable"]), (1, &json!(true)), "{untold:?}");
    assert_eq!(untold[0]["reason"], "the conversation it was started in has ended");
    let shown = expect_success(&fixture.run(&["status"]));
    assert!(shown.contains("undeliverable, the conversation it was started in has ended"), "{shown}");
    assert_eq!(
        fixture.model.read(|state| state.request_count()),
        asked,
        "the new session got the completion"
    );
    fixture.kill();
    fixture.start();
    fixture.wait_idle();
    assert_eq!(fixture.telegram.texts(7).len(), 3, "once");
}

#[test]
fn completion_waits_for_disabled_platform_and_is_listed() {
    let mut fixture = ProgramFixture::builder().telegram().discord().with(CONFIG).build();
    fixture.model.respond(scripted_answer);
    fixture.start();
    let flag = fixture.home.path().join("go");
    fixture.telegram.push_text(7, 7, format!("run {}", wait_for_file(&flag)));
    assert_eq!(fixture.wait_messages(7, 1), ["done"]);
    fixture.wait_idle();
    fixture.kill();
    let path = fixture.home.path().join("config.yaml");
    let with = std::fs::read_to_string(&path).expect("a configuration");
    let without = with.replacen("telegram:\n    enabled: true", "telegram:\n    enabled: false", 1);
    assert_ne!(with, without);
    std::fs::write(&path, without).expect("written");
    std::fs::write(&flag, "").expect("a flag");
    fixture.launch();
    until(&fixture, "listed", |fixture| {
        let out = fixture.run(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["untold"][0]["reason"] == "telegram is not set up"
    });
    assert_eq!(fixture.status()["untold"][0]["undeliverable"], false);
    fixture.kill();
    std::fs::write(&path, with).expect("written");
    fixture.start();
    let texts = fixture.wait_messages(7, 2);
    assert!(texts[1].contains("completed normally (exit code 0)"), "{texts:?}");
    fixture.wait_idle();
    assert_eq!(fixture.status()["untold"], json!([]));
    assert_eq!(fixture.telegram.texts(7).len(), 2);
}
