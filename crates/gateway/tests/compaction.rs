//! Compaction of long conversations: in place, valid at every moment, without losing a row.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use petasos_core::ids::RowId;
use petasos_core::transcript::Role;
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Point};
use petasos_gateway::CompactionSettings;
use petasos_store::RowState;
use serde_json::json;
use support::{GatewayFixture, SOON, key};

const OVERFLOW: &str = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
const REFERENCE: &str = "for reference only";

fn is_summary_request(request: &ChatRequest) -> bool {
    request.messages()[0]["content"].as_str().is_some_and(|text| text.starts_with("You write the notes"))
}

/// The model echoes, and returns this summary when it is asked for one.
fn set_summary(fixture: &GatewayFixture, summary: impl Fn() -> Answer + Send + Sync + 'static) {
    fixture.model.respond(move |request| {
        if is_summary_request(request) {
            summary()
        } else {
            Answer::text(format!("echo: {}", request.last_user))
        }
    });
}

fn exchange_messages(fixture: &GatewayFixture, exchanges: usize) {
    for number in 0..exchanges {
        fixture.telegram.push_text(7, 7, format!("message {number}"));
        fixture.expect_last_message(7, &format!("echo: message {number}"));
    }
}

fn fixture_with_max_rows(max_rows: usize) -> GatewayFixture {
    GatewayFixture::new(|settings| settings.compaction = CompactionSettings { enabled: true, rows: max_rows })
}

fn requests(fixture: &GatewayFixture, of: fn(&ChatRequest) -> bool) -> Vec<Arc<ChatRequest>> {
    fixture.model.requests().into_iter().filter(|request| of(request)).collect()
}

fn states(fixture: &GatewayFixture) -> Vec<(Role, RowState)> {
    fixture.read(|reader| {
        let session = reader.entry(&key(7))?.expect("a session").session_id;
        let rows = reader.rows_after(&session, RowId(0), 10_000)?;
        Ok(rows.into_iter().map(|row| (row.message.role, row.state)).collect())
    })
}

fn count(fixture: &GatewayFixture, state: RowState) -> usize {
    states(fixture).iter().filter(|row| row.1 == state).count()
}

/// Roles alternate, and the last row is the user's.
#[track_caller]
fn assert_valid_request(request: &ChatRequest) {
    let roles: Vec<_> = request.messages().iter().map(|row| row["role"].as_str().expect("a role")).collect();
    assert_eq!(roles[..2], ["system", "user"], "{roles:?}");
    assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
    assert_eq!(roles.last(), Some(&"user"));
}

#[test]
fn compacts_and_resends_a_refused_prompt() {
    let fixture = GatewayFixture::new(|_| {});
    exchange_messages(&fixture, 8);
    let session = fixture.entry(7).expect("a session").session_id;
    fixture.model.script(Answer::status(400, OVERFLOW));
    fixture.model.script(Answer::text("## Goal\nto be answered"));
    fixture.telegram.push_text(7, 7, "and now?");
    fixture.expect_last_message(7, "echo: and now?");
    assert_eq!(fixture.entry(7).expect("a session").session_id, session, "the same session");
    let all = fixture.model.requests();
    let [refused, notes, last] = &all[all.len() - 3..] else { panic!("three requests") };
    assert!(refused.raw.len() > last.raw.len() && notes.last_user.contains("message 4"));
    assert!(notes.tools().is_empty());
    assert_valid_request(last);
    let sent = last.body().to_string();
    assert!(sent.contains(REFERENCE) && sent.contains("to be answered") && sent.contains("message 0"));
    assert!(!sent.contains("message 4"));
    assert_eq!(states(&fixture).len(), 8 * 2 + 2 + 1, "no row is gone");
    assert!(count(&fixture, RowState::Compacted) > 8);
}

#[test]
fn summarises_many_messages_and_updates_the_summary() {
    let fixture = fixture_with_max_rows(30);
    let count = Arc::new(AtomicUsize::new(0));
    let made = count.clone();
    set_summary(&fixture, move || {
        Answer::text(format!("notes number {}", made.fetch_add(1, Ordering::SeqCst)))
    });
    exchange_messages(&fixture, 24);
    let notes = requests(&fixture, is_summary_request);
    assert!(notes.len() >= 2, "{}", notes.len());
    assert_eq!(notes.len(), count.load(Ordering::SeqCst));
    assert!(!notes[0].last_user.contains("<notes>"));
    assert!(notes[1].last_user.contains("<notes>\nnotes number 0\n</notes>"), "{}", notes[1].last_user);
    let plain = requests(&fixture, |request| !is_summary_request(request));
    plain.iter().for_each(|request| assert_valid_request(request));
    assert!(plain.iter().all(|request| request.messages().len() <= 33), "never more than the limit");
    let last = plain.last().expect("a request").body().to_string();
    assert_eq!(last.matches(REFERENCE).count(), 1, "one summary, not two");
    let rows = states(&fixture);
    assert_eq!(rows.iter().filter(|row| row.0 == Role::User).count(), 24);
    assert_eq!(rows.iter().filter(|row| *row == &(Role::Summary, RowState::Active)).count(), 1);
}

#[test]
fn failed_summary_changes_nothing_and_backs_off() {
    let fixture = fixture_with_max_rows(30);
    set_summary(&fixture, || Answer::status(401, ""));
    exchange_messages(&fixture, 20);
    assert_eq!(requests(&fixture, is_summary_request).len(), 1);
    assert_eq!(count(&fixture, RowState::Active), 40);
}

#[test]
fn empty_summary_is_replaced_by_a_plain_list() {
    let fixture = fixture_with_max_rows(30);
    set_summary(&fixture, || Answer::text("").finish("content_filter"));
    exchange_messages(&fixture, 17);
    assert_eq!(requests(&fixture, is_summary_request).len(), 1);
    let sent = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(sent.contains(REFERENCE) && sent.contains("- message 5"), "{sent}");
}

#[test]
fn crash_before_the_summary_commit_changes_nothing() {
    let mut fixture = fixture_with_max_rows(30);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    set_summary(&fixture, move || Answer::text("the notes").gate(Point::Before, &held));
    exchange_messages(&fixture, 15);
    fixture.telegram.push_text(7, 7, "last");
    assert!(gate.wait(SOON), "no summary was asked for");
    fixture.crash();
    assert_eq!(count(&fixture, RowState::Active), 31, "as it was");
    gate.open();
    fixture.start();
    let last = |text: &String| text.starts_with("echo: ") && text.ends_with("last");
    support::eventually("answered", || {
        fixture.telegram.texts(7).last().filter(|text| last(text)).map(|_| ())
    });
    assert_eq!(requests(&fixture, is_summary_request).len(), 2, "asked again");
    assert_eq!(states(&fixture).iter().filter(|row| row.0 == Role::User).count(), 16);
    assert_eq!(states(&fixture).iter().filter(|row| row.0 == Role::Summary).count(), 1);
    assert_valid_request(fixture.model.requests().last().expect("a request"));
}

#[test]
fn message_during_compaction_waits() {
    let fixture = fixture_with_max_rows(30);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    set_summary(&fixture, move || Answer::text("the notes").gate(Point::Before, &held));
    exchange_messages(&fixture, 15);
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON), "no summary was asked for");
    fixture.telegram.push_text(7, 7, "second");
    fixture.expect_last_message(7, "Queued for the next turn");
    gate.open();
    fixture.expect_last_message(7, "echo: second");
    assert!(fixture.telegram.texts(7).contains(&"echo: first".to_owned()));
}

#[test]
fn starts_a_fresh_session_when_compaction_is_exhausted() {
    let fixture = GatewayFixture::new(|_| {});
    exchange_messages(&fixture, 2);
    let old = fixture.entry(7).expect("a session").session_id;
    fixture.model.respond(|_| Answer::status(400, OVERFLOW));
    fixture.telegram.push_text(7, 7, "too much");
    fixture.expect_last_message(7, "started a new session");
    support::eventually("another session", || {
        fixture.entry(7).filter(|entry| entry.session_id != old).map(|_| ())
    });
    fixture.model.respond(|request| Answer::text(format!("echo: {}", request.last_user)));
    fixture.telegram.push_text(7, 7, "again");
    fixture.expect_last_message(7, "echo: again");
}

#[test]
fn names_the_setting_when_compaction_is_off() {
    let fixture = GatewayFixture::new(|settings| settings.compaction.enabled = false);
    exchange_messages(&fixture, 8);
    fixture.model.script(Answer::status(400, OVERFLOW));
    fixture.telegram.push_text(7, 7, "more");
    fixture.expect_last_message(7, "compression.enabled");
    assert_eq!(requests(&fixture, is_summary_request).len(), 0);
    assert_eq!(fixture.model.requests().len(), 9);
}

#[test]
fn compress_summarises_at_once_with_a_focus() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "/compress");
    fixture.expect_last_message(7, "nothing here to summarise");
    exchange_messages(&fixture, 8);
    set_summary(&fixture, || Answer::text("notes about tea").usage(100_000, 20));
    fixture.telegram.push_text(7, 7, "/compact the tea");
    fixture.expect_last_message(7, "🗜 I have summarised");
    let notes = requests(&fixture, is_summary_request);
    assert!(notes.len() == 1 && notes[0].last_user.contains("everything about: the tea"));
    let entry = fixture.entry(7).expect("a session");
    assert!(
        entry.input_tokens >= 100_000 && entry.last_prompt_tokens < 50_000,
        "spent, and no prompt of ours"
    );
    fixture.telegram.push_text(7, 7, "go on");
    fixture.expect_last_message(7, "echo: go on");
    let last = fixture.model.requests().last().expect("a request").clone();
    assert_valid_request(&last);
    assert!(last.body().to_string().contains("notes about tea"));
}

#[test]
fn compress_can_be_stopped_and_survives_a_crash() {
    let mut fixture = GatewayFixture::new(|_| {});
    exchange_messages(&fixture, 8);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    set_summary(&fixture, move || Answer::text("the notes").gate(Point::Before, &held));
    fixture.telegram.push_text(7, 7, "/compress");
    assert!(gate.wait(SOON), "no summary was asked for");
    fixture.telegram.push_text(7, 7, "/stop");
    fixture.expect_last_message(7, "⏹ Stopped");
    fixture.expect_message(7, "Nothing was changed");
    assert_eq!(count(&fixture, RowState::Compacted), 0);
    fixture.telegram.push_text(7, 7, "/compress");
    assert!(fixture.model.wait_requests(8 + 2, SOON), "no summary was asked for");
    fixture.crash();
    gate.open();
    fixture.start();
    fixture.expect_last_message(7, "🗜 I have summarised");
    assert_eq!(fixture.count(7, "🗜 I have summarised"), 1);
}

#[test]
fn open_todo_items_survive_the_summary() {
    let fixture = GatewayFixture::new(|_| {});
    exchange_messages(&fixture, 4);
    let item = |id: &str, status: &str| json!({"id": id, "content": format!("do {id}"), "status": status});
    let plan =
        json!({"todos": [item("one", "completed"), item("two", "in_progress"), item("three", "pending")]});
    fixture.model.respond(move |request| {
        let last = request.messages().last().cloned().unwrap_or_default();
        match last["role"].as_str() {
            _ if is_summary_request(request) => Answer::text("notes without a list"),
            Some("user") if request.last_user == "plan" => Answer::tool("todo", plan.clone()),
            Some("tool") => Answer::text("planned"),
            _ => Answer::text(format!("echo: {}", request.last_user)),
        }
    });
    fixture.telegram.push_text(7, 7, "plan");
    fixture.expect_last_message(7, "planned");
    exchange_messages(&fixture, 14);
    fixture.telegram.push_text(7, 7, "/compress");
    fixture.expect_last_message(7, "🗜 I have summarised");
    fixture.telegram.push_text(7, 7, "go on");
    fixture.expect_last_message(7, "echo: go on");
    let last = fixture.model.requests().last().expect("a request").clone();
    assert_valid_request(&last);
    let sent = last.body().to_string();
    assert!(!sent.contains("\"plan\""), "the wish itself is summed up: {sent}");
    assert!(sent.contains("- [>] do two (two)") && sent.contains("- [ ] do three (three)"), "{sent}");
    assert!(!sent.contains("do one"), "what is done is done: {sent}");
}
