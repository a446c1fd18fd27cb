//! Conversations that outgrow their model: summed up in place, legal at every moment, and never at the cost of a row.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use petasos_core::ids::RowId;
use petasos_core::transcript::Role;
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use petasos_gateway::Compression;
use petasos_store::RowState;
use serde_json::json;
use support::{SOON, World, key};

const OVERFLOW: &str = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
const REFERENCE: &str = "for reference only";

fn asks_for_notes(request: &Request) -> bool {
    request.messages()[0]["content"].as_str().is_some_and(|text| text.starts_with("You write the notes"))
}

/// A model that echoes, and answers differently when it is asked for a summary.
fn sums_up(world: &World, summary: impl Fn() -> Answer + Send + Sync + 'static) {
    world.model.respond(move |request| match asks_for_notes(request) {
        true => summary(),
        false => Answer::text(format!("echo: {}", request.last_user)),
    });
}

fn talk(world: &World, exchanges: usize) {
    for number in 0..exchanges {
        world.telegram.push_text(7, 7, format!("message {number}"));
        world.ends_with(7, &format!("echo: message {number}"));
    }
}

fn short(world_rows: usize) -> World {
    World::new(|settings| settings.compression = Compression { enabled: true, rows: world_rows })
}

fn requests(world: &World, of: fn(&Request) -> bool) -> Vec<Arc<Request>> {
    world.model.requests().into_iter().filter(|request| of(request)).collect()
}

fn states(world: &World) -> Vec<(Role, RowState)> {
    world.read(|reader| {
        let session = reader.entry(&key(7))?.expect("a session").session_id;
        let rows = reader.rows_after(&session, RowId(0), 10_000)?;
        Ok(rows.into_iter().map(|row| (row.message.role, row.state)).collect())
    })
}

fn count(world: &World, state: RowState) -> usize {
    states(world).iter().filter(|row| row.1 == state).count()
}

/// Roles alternate, every call has its result, and the user has the last word.
#[track_caller]
fn legal(request: &Request) {
    let roles: Vec<_> = request.messages().iter().map(|row| row["role"].as_str().expect("a role")).collect();
    assert_eq!(roles[..2], ["system", "user"], "{roles:?}");
    assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
    assert_eq!(roles.last(), Some(&"user"));
}

#[test]
fn a_prompt_that_the_provider_refuses_is_made_shorter_and_sent_again() {
    let world = World::new(|_| {});
    talk(&world, 8);
    let session = world.entry(7).expect("a session").session_id;
    world.model.script(Answer::status(400, OVERFLOW));
    world.model.script(Answer::text("## Goal\nto be answered"));
    world.telegram.push_text(7, 7, "and now?");
    world.ends_with(7, "echo: and now?");
    assert_eq!(world.entry(7).expect("a session").session_id, session, "the same session");
    let all = world.model.requests();
    let [refused, notes, last] = &all[all.len() - 3..] else { panic!("three requests") };
    assert!(refused.raw.len() > last.raw.len() && notes.last_user.contains("message 4"));
    assert!(notes.tools().is_empty());
    legal(last);
    let sent = last.body().to_string();
    assert!(sent.contains(REFERENCE) && sent.contains("to be answered") && sent.contains("message 0"));
    assert!(!sent.contains("message 4"));
    assert_eq!(states(&world).len(), 8 * 2 + 2 + 1, "no row is gone");
    assert!(count(&world, RowState::Compacted) > 8);
}

#[test]
fn many_messages_are_summed_up_and_the_summary_is_brought_up_to_date() {
    let world = short(30);
    let count = Arc::new(AtomicUsize::new(0));
    let made = count.clone();
    sums_up(&world, move || Answer::text(format!("notes number {}", made.fetch_add(1, Ordering::SeqCst))));
    talk(&world, 24);
    let notes = requests(&world, asks_for_notes);
    assert!(notes.len() >= 2, "{}", notes.len());
    assert_eq!(notes.len(), count.load(Ordering::SeqCst));
    assert!(!notes[0].last_user.contains("<notes>"));
    assert!(notes[1].last_user.contains("<notes>\nnotes number 0\n</notes>"), "{}", notes[1].last_user);
    let plain = requests(&world, |request| !asks_for_notes(request));
    plain.iter().for_each(|request| legal(request));
    assert!(plain.iter().all(|request| request.messages().len() <= 33), "never more than the limit");
    let last = plain.last().expect("a request").body().to_string();
    assert_eq!(last.matches(REFERENCE).count(), 1, "one summary, not two");
    let rows = states(&world);
    assert_eq!(rows.iter().filter(|row| row.0 == Role::User).count(), 24);
    assert_eq!(rows.iter().filter(|row| *row == &(Role::Summary, RowState::Active)).count(), 1);
}

#[test]
fn a_summary_that_cannot_be_had_leaves_everything_as_it_was_and_is_not_asked_for_again_soon() {
    let world = short(30);
    sums_up(&world, || Answer::status(401, ""));
    talk(&world, 20);
    assert_eq!(requests(&world, asks_for_notes).len(), 1);
    assert_eq!(count(&world, RowState::Active), 40);
}

#[test]
fn a_model_that_has_nothing_to_say_is_replaced_by_a_plain_list() {
    let world = short(30);
    sums_up(&world, || Answer::text("").finish("content_filter"));
    talk(&world, 17);
    assert_eq!(requests(&world, asks_for_notes).len(), 1);
    let sent = world.model.requests().last().expect("a request").body().to_string();
    assert!(sent.contains(REFERENCE) && sent.contains("- message 5"), "{sent}");
}

#[test]
fn a_crash_before_the_summary_is_kept_changes_nothing_and_the_turn_goes_on() {
    let mut world = short(30);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    sums_up(&world, move || Answer::text("the notes").gate(Point::Before, &held));
    talk(&world, 15);
    world.telegram.push_text(7, 7, "last");
    assert!(gate.wait(SOON), "no summary was asked for");
    world.crash();
    assert_eq!(count(&world, RowState::Active), 31, "as it was");
    gate.open();
    world.start();
    let last = |text: &String| text.starts_with("echo: ") && text.ends_with("last");
    support::eventually("answered", || world.telegram.texts(7).last().filter(|text| last(text)).map(|_| ()));
    assert_eq!(requests(&world, asks_for_notes).len(), 2, "asked again");
    assert_eq!(states(&world).iter().filter(|row| row.0 == Role::User).count(), 16);
    assert_eq!(states(&world).iter().filter(|row| row.0 == Role::Summary).count(), 1);
    legal(world.model.requests().last().expect("a request"));
}

#[test]
fn who_writes_while_room_is_being_made_waits_and_does_not_interrupt() {
    let world = short(30);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    sums_up(&world, move || Answer::text("the notes").gate(Point::Before, &held));
    talk(&world, 15);
    world.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON), "no summary was asked for");
    world.telegram.push_text(7, 7, "second");
    world.ends_with(7, "Queued for the next turn");
    gate.open();
    world.ends_with(7, "echo: second");
    assert!(world.telegram.texts(7).contains(&"echo: first".to_owned()));
}

#[test]
fn when_nothing_more_can_go_a_fresh_session_is_started_and_said() {
    let world = World::new(|_| {});
    talk(&world, 2);
    let old = world.entry(7).expect("a session").session_id;
    world.model.respond(|_| Answer::status(400, OVERFLOW));
    world.telegram.push_text(7, 7, "too much");
    world.ends_with(7, "started a fresh session");
    support::eventually("another session", || {
        world.entry(7).filter(|entry| entry.session_id != old).map(|_| ())
    });
    world.model.respond(|request| Answer::text(format!("echo: {}", request.last_user)));
    world.telegram.push_text(7, 7, "again");
    world.ends_with(7, "echo: again");
}

#[test]
fn with_compression_switched_off_the_author_is_told_what_to_do() {
    let world = World::new(|settings| settings.compression.enabled = false);
    talk(&world, 8);
    world.model.script(Answer::status(400, OVERFLOW));
    world.telegram.push_text(7, 7, "more");
    world.ends_with(7, "compression.enabled");
    assert_eq!(requests(&world, asks_for_notes).len(), 0);
    assert_eq!(world.model.requests().len(), 9);
}

#[test]
fn compress_sums_up_at_once_with_what_matters_most() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "/compress");
    world.ends_with(7, "nothing here that could be made shorter");
    talk(&world, 8);
    sums_up(&world, || Answer::text("notes about tea").usage(100_000, 20));
    world.telegram.push_text(7, 7, "/compact the tea");
    world.ends_with(7, "🗜 Compressed");
    let notes = requests(&world, asks_for_notes);
    assert!(notes.len() == 1 && notes[0].last_user.contains("concerns: the tea"));
    let entry = world.entry(7).expect("a session");
    assert!(
        entry.input_tokens >= 100_000 && entry.last_prompt_tokens < 50_000,
        "spent, and no prompt of ours"
    );
    world.telegram.push_text(7, 7, "go on");
    world.ends_with(7, "echo: go on");
    let last = world.model.requests().last().expect("a request").clone();
    legal(&last);
    assert!(last.body().to_string().contains("notes about tea"));
}

#[test]
fn a_compression_can_be_stopped_and_survives_a_crash() {
    let mut world = World::new(|_| {});
    talk(&world, 8);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    sums_up(&world, move || Answer::text("the notes").gate(Point::Before, &held));
    world.telegram.push_text(7, 7, "/compress");
    assert!(gate.wait(SOON), "no summary was asked for");
    world.telegram.push_text(7, 7, "/stop");
    world.ends_with(7, "⏹ Stopped");
    world.sees(7, "Nothing was changed");
    assert_eq!(count(&world, RowState::Compacted), 0);
    world.telegram.push_text(7, 7, "/compress");
    assert!(world.model.wait_requests(8 + 2, SOON), "no summary was asked for");
    world.crash();
    gate.open();
    world.start();
    world.ends_with(7, "🗜 Compressed");
    assert_eq!(world.count(7, "🗜 Compressed"), 1);
}

#[test]
fn what_is_still_to_be_done_outlives_the_summary() {
    let world = World::new(|_| {});
    talk(&world, 4);
    let item = |id: &str, status: &str| json!({"id": id, "content": format!("do {id}"), "status": status});
    let plan =
        json!({"todos": [item("one", "completed"), item("two", "in_progress"), item("three", "pending")]});
    world.model.respond(move |request| {
        let last = request.messages().last().cloned().unwrap_or_default();
        match last["role"].as_str() {
            _ if asks_for_notes(request) => Answer::text("notes without a list"),
            Some("user") if request.last_user == "plan" => Answer::tool("todo", plan.clone()),
            Some("tool") => Answer::text("planned"),
            _ => Answer::text(format!("echo: {}", request.last_user)),
        }
    });
    world.telegram.push_text(7, 7, "plan");
    world.ends_with(7, "planned");
    talk(&world, 14);
    world.telegram.push_text(7, 7, "/compress");
    world.ends_with(7, "🗜 Compressed");
    world.telegram.push_text(7, 7, "go on");
    world.ends_with(7, "echo: go on");
    let last = world.model.requests().last().expect("a request").clone();
    legal(&last);
    let sent = last.body().to_string();
    assert!(!sent.contains("\"plan\""), "the wish itself is summed up: {sent}");
    assert!(sent.contains("- [>] do two (two)") && sent.contains("- [ ] do three (three)"), "{sent}");
    assert!(!sent.contains("do one"), "what is done is done: {sent}");
}
