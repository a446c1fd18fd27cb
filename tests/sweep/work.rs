//! Work that the agent does with its tools, and work that is scheduled.

use petasos_fakes::model::{Answer, Request};
use petasos_gateway::{Commit, Side};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::Scenario;
use crate::life::{Life, Outcome, short, wait};
use crate::support::{Bench, SOON, said};
use crate::talk::CHAT;

const CONFIG: &str = "terminal: {enabled: true, login_shell: false}\n\
                      display: {busy_input_mode: queue, busy_ack_enabled: false}\n";
const DELEGATED: &str = "[ASYNC DELEGATION BATCH COMPLETE";
const JOB: &str = "⏰ Look";

/// What the model is told decides which tool it calls; a tool's result comes back as `got`.
fn obey(request: &Request) -> Answer {
    let said = said(&request.last_user);
    let messages = request.messages();
    if let Some(row) = messages.last().filter(|row| row["role"] == "tool") {
        return Answer::text(format!("got {}", row["content"].as_str().unwrap_or_default()));
    }
    if let Some(command) = said.strip_prefix("run ") {
        let call = json!({"command": command, "background": true, "notify_on_complete": true});
        return Answer::tool("terminal", call);
    }
    if let Some(command) = said.strip_prefix("remove ") {
        return Answer::tool("terminal", json!({ "command": command }));
    }
    if let Some(goal) = said.strip_prefix("delegate: ") {
        return Answer::tool("delegate_task", json!({ "tasks": [{ "goal": goal }] }));
    }
    if said == "todo" {
        let items = json!([{"id": "1", "content": "dig", "status": "pending"}]);
        return Answer::tool("todo", json!({ "todos": items }));
    }
    Answer::text(format!("heard: {said}"))
}

pub fn set_up() -> Life {
    let bench = Bench::with(CONFIG);
    bench.model.respond(obey);
    std::fs::create_dir_all(bench.home.path().join("workspace/x")).expect("a folder");
    Life::new(bench)
}

pub fn say(life: &mut Life, text: &str) -> Outcome {
    life.launch();
    life.bench.telegram.push_text(CHAT, CHAT, text);
    Ok(())
}

fn count(life: &Life, question: &str) -> i64 {
    let store = Connection::open(life.bench.database()).expect("a store");
    store.query_row(question, [], |row| row.get(0)).expect("a count")
}

/// The turn ends with an answer in the chat, whatever became of its tool.
fn answered(life: &mut Life) -> Outcome {
    life.launch();
    life.sees(CHAT, "got ")?;
    life.bench.settle();
    life.at_most_one_unmarked(CHAT, "got ")
}

/// Processes that run and ends that were not told.
const OPEN: &str = "SELECT (SELECT count(*) FROM processes WHERE ended_at IS NULL)
     + (SELECT count(*) FROM completions WHERE state IN ('queued', 'delivered'))";

pub fn check_background(life: &mut Life, commit: Commit, side: Side, nth: u32) -> Outcome {
    answered(life)?;
    wait("every end is told", || count(life, OPEN) == 0)?;
    // Only before its row is there is it certain that it never ran: then the turn alone reports it.
    if (commit, side, nth) != (Commit::Process, Side::Before, 1) {
        life.sees(CHAT, "heard: ")?;
        life.bench.settle();
    }
    life.at_most_one_unmarked(CHAT, "heard: ")
}

/// The first commit asks, the second one is the answer.
pub fn ask_for_approval(life: &mut Life, nth: u32) -> Outcome {
    say(life, "remove rm -rf ./x")?;
    if nth == 1 {
        return Ok(());
    }
    let asked = life.bench.telegram.wait_until(SOON, |world| {
        let mut all = world.messages(CHAT);
        let message = all.find(|it| it.text.contains("May I run") && it.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (message, keyboard) = asked.ok_or("never asked")?;
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    let mut data = keys.filter_map(|key| key["callback_data"].as_str());
    let yes = data.find(|data| data.starts_with("ea:once:")).ok_or("no such button")?;
    life.bench.telegram.push_callback(CHAT, CHAT, message, yes);
    Ok(())
}

/// Nothing runs without a stored yes, and the model learns what became of the call.
pub fn check_approval(life: &mut Life, side: Side, nth: u32) -> Outcome {
    answered(life)?;
    let agreed = nth == 2 && side == Side::After;
    let there = life.bench.home.path().join("workspace/x").exists();
    if there || agreed { Ok(()) } else { Err("it was run without a yes".into()) }
}

pub fn check_todo(life: &mut Life) -> Outcome {
    answered(life)
}

pub fn check_delegation(life: &mut Life, side: Side, nth: u32) -> Outcome {
    answered(life)?;
    if (side, nth) != (Side::Before, 1) {
        life.sees(CHAT, DELEGATED)?;
        life.bench.settle();
    }
    life.at_most_one_unmarked(CHAT, DELEGATED)?;
    let told = "SELECT count(*) FROM messages WHERE role = 'user' AND content LIKE '%[ASYNC DELEGATION%'";
    let told = count(life, told);
    if told > 1 { Err(format!("told {told} times")) } else { Ok(()) }
}

fn add(schedule: &str) -> [&str; 9] {
    ["--json", "cron", "add", schedule, "work", "--deliver", "telegram:101", "--name", "Look"]
}

pub fn due_job(life: &mut Life) -> Outcome {
    life.launch_ready();
    let added = life.bench.run(&add("1s"));
    if added.status.success() { Ok(()) } else { Err(format!("{added:?}")) }
}

pub fn run_job(life: &mut Life) -> Outcome {
    life.launch_ready();
    let added = life.bench.run(&add("every 5h"));
    let job: Value = serde_json::from_slice(&added.stdout).map_err(|error| error.to_string())?;
    life.begin(&["cron", "run", job["id"].as_str().unwrap_or_default()]);
    Ok(())
}

pub fn add_job(life: &mut Life) -> Outcome {
    life.launch_ready();
    life.begin(&add("1s"));
    Ok(())
}

pub fn check_job(life: &mut Life) -> Outcome {
    life.launch();
    life.sees(CHAT, JOB)?;
    life.bench.settle();
    life.at_most_one_unmarked(CHAT, JOB)?;
    life.asked_at_most(2)
}

/// What is on disk runs; of what is not, the one who asked was told that it failed.
pub fn check_asked_job(life: &mut Life, scenario: Scenario, side: Side) -> Outcome {
    let asked = life.ended()?;
    if asked.status.success() {
        return Err(format!("{scenario:?} succeeded in a gateway that was killed: {asked:?}"));
    }
    match side {
        Side::After => check_job(life),
        Side::Before => {
            life.launch_ready();
            life.bench.settle();
            match life.texts(CHAT) {
                texts if texts.is_empty() => Ok(()),
                texts => Err(format!("told although it was refused: {:?}", short(&texts))),
            }
        }
    }
}
