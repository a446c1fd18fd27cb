//! Tools, delegation, approvals and jobs.

use petasos_fakes::model::{Answer, ChatRequest};
use petasos_gateway::{Commit, Side};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::Scenario;
use crate::conversation::CHAT;
use crate::fixture::{SweepFixture, SweepResult, short, wait};
use crate::support::{ProgramFixture, SOON, user_text};

const CONFIG: &str = "terminal: {enabled: true, sandbox: 'off', login_shell: false}\n\
                      display: {busy_input_mode: queue, busy_ack_enabled: false}\n";
const DELEGATED: &str = "[ASYNC DELEGATION BATCH COMPLETE";
const JOB: &str = "⏰ Look";

/// The user text selects the tool; its result is answered as `got …`.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let said = user_text(&request.last_user);
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

pub fn set_up() -> SweepFixture {
    let program = ProgramFixture::with_config(CONFIG);
    program.model.respond(scripted_answer);
    std::fs::create_dir_all(program.home.path().join("workspace/x")).expect("a folder");
    SweepFixture::new(program)
}

pub fn send_text(fixture: &mut SweepFixture, text: &str) -> SweepResult {
    fixture.launch();
    fixture.program.telegram.push_text(CHAT, CHAT, text);
    Ok(())
}

fn count(fixture: &SweepFixture, question: &str) -> i64 {
    let store = Connection::open(fixture.program.database()).expect("a store");
    store.query_row(question, [], |row| row.get(0)).expect("a count")
}

/// The turn ends with an answer in the chat, also if its tool was interrupted.
fn wait_answer(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.wait_text(CHAT, "got ")?;
    fixture.program.wait_idle();
    fixture.check_no_unmarked_copy(CHAT, "got ")
}

/// Running processes and unreported completions.
const OPEN: &str = "SELECT (SELECT count(*) FROM processes WHERE ended_at IS NULL)
     + (SELECT count(*) FROM completions WHERE state IN ('queued', 'delivered'))";

pub fn check_background(fixture: &mut SweepFixture, commit: Commit, side: Side, nth: u32) -> SweepResult {
    wait_answer(fixture)?;
    wait("every completion is reported", || count(fixture, OPEN) == 0)?;
    // Without its row the process has certainly not run: then only the turn reports it.
    if (commit, side, nth) != (Commit::Process, Side::Before, 1) {
        fixture.wait_text(CHAT, "heard: ")?;
        fixture.program.wait_idle();
    }
    fixture.check_no_unmarked_copy(CHAT, "heard: ")
}

/// The first commit stores the request, the second one the answer.
pub fn ask_for_approval(fixture: &mut SweepFixture, nth: u32) -> SweepResult {
    send_text(fixture, "remove rm -rf ./x")?;
    if nth == 1 {
        return Ok(());
    }
    let asked = fixture.program.telegram.wait_until(SOON, |state| {
        let mut all = state.messages(CHAT);
        let message = all.find(|it| it.text.contains("May I run") && it.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (message, keyboard) = asked.ok_or("never asked")?;
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    let mut data = keys.filter_map(|key| key["callback_data"].as_str());
    let yes = data.find(|data| data.starts_with("ea:once:")).ok_or("no such button")?;
    fixture.program.telegram.push_callback(CHAT, CHAT, message, yes);
    Ok(())
}

/// No command runs without a stored approval, and the model gets a result.
pub fn check_approval(fixture: &mut SweepFixture, side: Side, nth: u32) -> SweepResult {
    wait_answer(fixture)?;
    let agreed = nth == 2 && side == Side::After;
    let there = fixture.program.home.path().join("workspace/x").exists();
    if there || agreed { Ok(()) } else { Err("run without approval".into()) }
}

pub fn check_todo(fixture: &mut SweepFixture) -> SweepResult {
    wait_answer(fixture)
}

pub fn check_delegation(fixture: &mut SweepFixture, side: Side, nth: u32) -> SweepResult {
    wait_answer(fixture)?;
    if (side, nth) != (Side::Before, 1) {
        fixture.wait_text(CHAT, DELEGATED)?;
        fixture.program.wait_idle();
    }
    fixture.check_no_unmarked_copy(CHAT, DELEGATED)?;
    let reports = "SELECT count(*) FROM messages WHERE role = 'user' AND content LIKE '%[ASYNC DELEGATION%'";
    let reports = count(fixture, reports);
    if reports > 1 { Err(format!("reported {reports} times")) } else { Ok(()) }
}

fn add(schedule: &str) -> [&str; 9] {
    ["--json", "cron", "add", schedule, "work", "--deliver", "telegram:101", "--name", "Look"]
}

pub fn due_job(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch_ready();
    let added = fixture.program.run(&add("1s"));
    if added.status.success() { Ok(()) } else { Err(format!("{added:?}")) }
}

pub fn run_job(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch_ready();
    let added = fixture.program.run(&add("every 5h"));
    let job: Value = serde_json::from_slice(&added.stdout).map_err(|error| error.to_string())?;
    fixture.spawn_command(&["cron", "run", job["id"].as_str().unwrap_or_default()]);
    Ok(())
}

pub fn add_job(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch_ready();
    fixture.spawn_command(&add("1s"));
    Ok(())
}

pub fn check_job(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.wait_text(CHAT, JOB)?;
    fixture.program.wait_idle();
    fixture.check_no_unmarked_copy(CHAT, JOB)?;
    fixture.check_model_calls(2)
}

/// A stored job runs; the command that requested any other fails.
pub fn check_asked_job(fixture: &mut SweepFixture, scenario: Scenario, side: Side) -> SweepResult {
    let asked = fixture.wait_command()?;
    if asked.status.success() {
        return Err(format!("{scenario:?} succeeded in a gateway that was killed: {asked:?}"));
    }
    match side {
        Side::After => check_job(fixture),
        Side::Before => {
            fixture.launch_ready();
            fixture.program.wait_idle();
            match fixture.texts(CHAT) {
                texts if texts.is_empty() => Ok(()),
                texts => Err(format!("delivered although the command failed: {:?}", short(&texts))),
            }
        }
    }
}
