//! Callers that stop waiting: an HTTP connection that closes, a tool call that is aborted. Each operation is polled a
//! few times and dropped, at every await it has; what it has committed by then takes effect all the same. Operations
//! that tools call are tested beside their code (`questions`, `delegation`, `processes`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_approval::Answer as Consent;
use petasos_core::OutboxId;
use petasos_core::cron::{Change, JobId, NewJob};
use petasos_core::journal::Outcome;
use petasos_core::message::ChatType;
use petasos_core::outbox::State;
use petasos_core::{InboxId, SessionKey, Source};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Job, Mirror, Place, Post, RunAsk, RunRow, Wish};
use serde_json::json;
use support::{SOON, World, eventually, telegram};

/// More polls than any of the operations needs.
const MOST_POLLS: usize = 64;
const MOST_SERIES: usize = 10;
/// What may wait for the task that knows the sessions.
const MAILBOX: usize = 1024;
/// The chat in which each operation shows its effect.
const CHAT: i64 = 7;
const RUN: &str = "run_1";

/// Polls a future this often, each time after it was woken, and drops it at the next wake-up. `false`: it finished.
fn dropped_after(world: &World, polls: usize, future: impl Future) -> bool {
    world.runtime.block_on(async {
        let (mut future, mut left) = (pin!(future), polls);
        poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(true);
            }
            left -= 1;
            future.as_mut().poll(context).map(|_finished| false)
        })
        .await
    })
}

/// Polls an operation once while no task runs and the mailbox of the sessions is full, and drops it.
fn dropped_at_a_full_mailbox(world: &World, key: &SessionKey, operation: impl Future) {
    let (busy, is_busy) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    // The only worker of the runtime.
    world.runtime.spawn(async move {
        busy.send(()).unwrap();
        // The other end is dropped.
        let _ = may_go_on.recv();
    });
    is_busy.recv().unwrap();
    world.runtime.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        let view = || Box::pin(tokio::task::unconstrained(world.handle().view(key)));
        let mut others: Vec<_> = (0..=MAILBOX).map(|_| view()).collect();
        assert!(others.iter_mut().all(|other| other.as_mut().poll(&mut context).is_pending()));
        assert!(pin!(tokio::task::unconstrained(operation)).poll(&mut context).is_pending());
    });
    drop(go_on);
}

/// A write behind everything that was enqueued before it.
fn barrier(world: &World) {
    let handle = world.handle().clone();
    world.runtime.block_on(async {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        handle.pairing_unlock(telegram()).await.unwrap();
    });
}

/// Runs `operation` once per await point, each time in a new gateway, until it finishes.
///
/// `committed`: whether the store has what was asked for; `effect`: what must follow from that.
#[track_caller]
fn survives_being_dropped<T>(
    prepare: impl Fn(&World) -> T,
    operation: impl AsyncFn(&World, &T),
    committed: impl Fn(&World, &T) -> bool,
    effect: impl Fn(&World, &T),
) {
    let mut dropped_with_commit = 0;
    // How often it is woken depends on other threads: a series that never dropped it behind its commit shows nothing.
    for _series in 0..MOST_SERIES {
        for polls in 1..MOST_POLLS {
            let world = World::new(|settings| settings.terminal = Some(TerminalConfig::default()));
            world.model.respond(|_| Answer::text("ran"));
            let prepared = prepare(&world);
            let dropped = dropped_after(&world, polls, operation(&world, &prepared));
            barrier(&world);
            if committed(&world, &prepared) {
                effect(&world, &prepared);
                dropped_with_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        if dropped_with_commit > 0 {
            return;
        }
    }
    panic!("never dropped behind its commit");
}

fn chat() -> Source {
    let mut source = Source::new(telegram(), ChatType::Dm, CHAT.to_string());
    source.user_id = Some(CHAT.to_string());
    source
}

fn job(schedule: &str) -> NewJob {
    let (name, schedule) = (Some("Look".into()), schedule.into());
    NewJob { name, schedule, prompt: "work".into(), ..NewJob::default() }
}

fn yearly(world: &World) -> JobId {
    let created = world.runtime.block_on(world.handle().job_create(job("every 9000h"), Some(chat())));
    // The timer has looked at it.
    barrier(world);
    created.unwrap().job.id
}

fn run_ask(run: &str, text: &str) -> RunAsk {
    RunAsk {
        run: run.into(),
        owner: "owner".into(),
        sees_all: false,
        place: Place::Session("work".into()),
        text: text.into(),
        attachments: vec![],
        wish: Wish { answers: true, ..Wish::default() },
        once: None,
    }
}

fn run(world: &World) -> RunRow {
    world.read(|reader| reader.run(RUN)).unwrap()
}

fn run_ended(world: &World, outcome: Outcome) {
    eventually("ended", || run(world).end.filter(|end| end.outcome == outcome));
}

/// A run that asks whether a command may run.
fn asking_run(world: &World) -> RunRow {
    world.model.script(Answer::tool("terminal", json!({ "command": "rm -rf ./x" })));
    let started = world.runtime.block_on(world.handle().start_run(run_ask(RUN, "remove it")));
    started.unwrap();
    eventually("asked", || world.read(|reader| reader.all_open_questions()).pop());
    run(world)
}

fn told(world: &World) {
    world.shows(CHAT, &["⏰ Look\n\nran"]);
}

#[test]
fn job_run_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        yearly,
        async |world, id| drop(world.handle().job_run(id).await),
        |world, id| !world.read(|reader| reader.occurrences(id, 9)).is_empty(),
        |world, _| told(world),
    );
}

#[test]
fn job_create_rearms_the_timer_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |world, ()| drop(world.handle().job_create(job("1s"), Some(chat())).await),
        |world, ()| !world.read(|reader| reader.jobs()).is_empty(),
        |world, ()| told(world),
    );
}

#[test]
fn job_change_rearms_the_timer_after_the_caller_is_dropped() {
    survives_being_dropped(
        yearly,
        async |world, id| {
            let change = Change { schedule: Some("1s".into()), ..Change::default() };
            drop(world.handle().job_change(id, change).await);
        },
        |world, id| world.read(|reader| reader.job(id)).is_some_and(|(job, _)| job.schedule == "1s"),
        |world, _| told(world),
    );
}

#[test]
fn post_reaches_every_chat_after_the_caller_is_dropped() {
    let chats = [CHAT, CHAT + 1, CHAT + 2];
    survives_being_dropped(
        |_| (),
        async |world, ()| {
            let to = chats.map(|chat| format!("telegram:{chat}")).join(",");
            let (job, mirror) = (Job::default(), Mirror::Own);
            let post = Post { to, text: "the news".into(), job, origin: None, mirror, wait: Duration::ZERO };
            drop(world.handle().post(post).await);
        },
        |_, ()| true,
        |world, ()| chats.iter().for_each(|chat| world.shows(*chat, &["the news"])),
    );
}

#[test]
fn outbox_retry_wakes_the_lane_after_the_caller_is_dropped() {
    let dead = |world: &World| -> OutboxId {
        world.telegram.on("sendMessage").times(1).does(Fault::status(400, "Bad Request: message is odd"));
        world.telegram.push_text(CHAT, CHAT, "hello");
        eventually("given up", || {
            world.read(|reader| reader.items_in(State::Dead, 9)).first().map(|item| item.id)
        })
    };
    survives_being_dropped(
        dead,
        async |world, id| drop(world.handle().outbox_retry(*id).await),
        |world, id| world.read(|reader| reader.item(*id)).is_some_and(|item| item.state != State::Dead),
        |world, _| world.shows(CHAT, &["ran"]),
    );
}

#[test]
fn submit_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |world, ()| drop(world.handle().submit(support::web("page", "hello")).await),
        |world, ()| world.read(|reader| reader.newest()) > InboxId(0),
        |world, ()| {
            let asked = world.model.wait_until(SOON, |desk| (desk.requests().count() == 1).then_some(()));
            assert!(asked.is_some(), "the message waits for the next start");
        },
    );
}

#[test]
fn start_run_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |world, ()| drop(world.handle().start_run(run_ask(RUN, "hello")).await),
        |world, ()| world.read(|reader| reader.run(RUN)).is_some(),
        |world, ()| run_ended(world, Outcome::Answered),
    );
}

#[test]
fn answer_run_releases_the_run_after_the_caller_is_dropped() {
    survives_being_dropped(
        asking_run,
        async |world, run| {
            let answer = Consent::approve("").unwrap();
            drop(world.handle().answer_run(run, answer).await);
        },
        |world, _| world.read(|reader| reader.all_open_questions()).is_empty(),
        |world, _| run_ended(world, Outcome::Answered),
    );
}

#[test]
fn stop_run_stops_the_run_and_its_question_after_the_caller_is_dropped() {
    let world = World::new(|settings| settings.terminal = Some(TerminalConfig::default()));
    let asking = asking_run(&world);
    dropped_at_a_full_mailbox(&world, &asking.key, world.handle().stop_run(&asking));
    assert!(world.handle().is_stopping(RUN));
    run_ended(&world, Outcome::Cancelled);
    assert!(world.read(|reader| reader.all_open_questions()).is_empty(), "its question waits");
}

#[test]
fn stop_turn_stops_the_turn_after_the_caller_is_dropped() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(CHAT, CHAT, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    let key = support::key(CHAT);
    dropped_at_a_full_mailbox(&world, &key, world.handle().stop_turn(&key));
    world.until("idle", |situation| situation.holders.is_empty().then_some(()));
    gate.open();
}
