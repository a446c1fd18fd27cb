//! Commands that need a yes, with the real program: asked in the chat with buttons, never run without one, whatever
//! happens to the process.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use petasos_fakes::model::{Answer, Request};
use serde_json::{Value, json};
use support::{Bench, SOON};

const CONFIG: &str = "terminal: {enabled: true, login_shell: false}\n";

/// `run: <command>` is run, and its result comes back; whatever else is said is echoed.
fn obey(request: &Request) -> Answer {
    let body = request.body();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    match (last["role"].as_str(), request.last_user.split_once("run: ")) {
        (Some("user"), Some((_, command))) => Answer::tool("terminal", json!({ "command": command })),
        (Some("tool"), _) => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
        _ => Answer::text(format!("echo: {}", request.last_user)),
    }
}

fn bench() -> Bench {
    let bench = Bench::with(CONFIG);
    bench.model.respond(obey);
    bench
}

/// Waits for the question about this and gives its message and what its buttons carry.
#[track_caller]
fn asked(bench: &Bench, chat: i64, about: &str) -> (i64, Vec<String>) {
    let found = bench.telegram.wait_until(SOON, |world| {
        let waits = |text: &str| text.contains("May I run") && text.contains(about);
        let message = world.messages(chat).find(|it| waits(&it.text) && it.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (id, keyboard) = found.unwrap_or_else(|| panic!("never asked: {:?}", bench.telegram.texts(chat)));
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    (id, keys.filter_map(|key| key["callback_data"].as_str().map(str::to_owned)).collect())
}

fn press(bench: &Bench, chat: i64, question: &(i64, Vec<String>), choice: &str) {
    let wanted = format!("ea:{choice}:");
    let data = question.1.iter().find(|data| data.starts_with(&wanted)).expect("such a button");
    bench.telegram.push_callback(chat, chat, question.0, data);
}

#[track_caller]
fn sees(bench: &Bench, chat: i64, want: &str) {
    let found = bench.telegram.wait_until(SOON, |world| {
        world.messages(chat).any(|message| message.text.contains(want)).then_some(())
    });
    assert!(found.is_some(), "{want:?} never came: {:?}", bench.telegram.texts(chat));
}

#[test]
fn a_kill_while_waiting_loses_the_question_and_runs_nothing_and_always_outlives_another() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&bench, 7, "rm -rf ./x");
    // Its message is known by its number: a copy of unknown fate would keep its buttons.
    bench.settle_outbox();
    bench.kill();
    press(&bench, 7, &question, "once");
    bench.start();
    sees(&bench, 7, "lost in a restart of the gateway. It was not run.");
    sees(&bench, 7, "NOT RUN");
    sees(&bench, 7, "That question is over.");
    assert!(folder.exists(), "nobody agreed to this");
    let gone = bench.telegram.wait_until(SOON, |world| {
        let mut shown = world.messages(7).filter(|it| it.id == question.0);
        shown.any(|it| it.reply_markup.is_none()).then_some(())
    });
    assert!(gone.is_some(), "its buttons stay");

    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let again = asked(&bench, 7, "rm -rf ./x");
    press(&bench, 7, &again, "always");
    sees(&bench, 7, "allowed it from now on");
    assert!(!folder.exists());
    bench.kill();
    std::fs::create_dir_all(&folder).expect("made");
    bench.start();
    bench.telegram.push_text(8, 8, "run: rm -rf ./x");
    sees(&bench, 8, "the user has allowed such commands");
    assert!(!folder.exists());
}

#[test]
fn a_question_can_be_answered_from_the_terminal_by_its_name() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&bench, 7, "rm -rf ./x");
    let name = question.1[0].rsplit(':').next().expect("a name").to_owned();
    let said = bench.run(&["chat", &format!("/approve {name}")]);
    assert!(support::stdout(&said).contains("Allowed once"), "{said:?}");
    sees(&bench, 7, "allowed it once");
    assert!(!folder.exists());
}
