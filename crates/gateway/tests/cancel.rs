//! Cancelled callers, such as a closed HTTP connection or an aborted tool call. Each operation is polled a few times and dropped, at
//! each of its awaits; what it has committed by then must take effect. Operations that tools call are tested beside their code
//! (`questions`, `delegation`, `processes`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_approval::ApprovalReply as Consent;
use petasos_core::OutboxId;
use petasos_core::cron::{JobId, JobUpdate, NewJob};
use petasos_core::journal::MessageOutcome;
use petasos_core::message::ChatType;
use petasos_core::outbox::State;
use petasos_core::{InboxId, SessionKey, Source};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{MirrorMode, Notification, OutputJob, RunOptions, RunRequest, RunRow, RunTarget};
use serde_json::json;
use support::{GatewayFixture, SOON, eventually, telegram};

/// More polls than any operation needs.
const MOST_POLLS: usize = 64;
const MOST_SERIES: usize = 10;
/// Mailbox size of the router task.
const MAILBOX: usize = 1024;
/// The chat in which each operation shows its effect.
const CHAT: i64 = 7;
const RUN: &str = "run_1";

/// Polls a future `polls` times, each time after a wake-up, and drops it at the next one. `false`: it finished.
fn dropped_after(fixture: &GatewayFixture, polls: usize, future: impl Future) -> bool {
    fixture.runtime.block_on(async {
        let mut future = pin!(future);
        let mut left = polls;
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

/// Polls an operation once while no task runs and the router's mailbox is full, then drops it.
fn dropped_at_a_full_mailbox(fixture: &GatewayFixture, key: &SessionKey, operation: impl Future) {
    let (busy, is_busy) = mpsc::sync_channel(1);
    let (go_on, may_go_on) = mpsc::sync_channel::<()>(1);
    // Occupies the only worker of the runtime.
    fixture.runtime.spawn(async move {
        busy.send(()).unwrap();
        let _ = may_go_on.recv();
    });
    is_busy.recv().unwrap();
    fixture.runtime.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        let view = || Box::pin(tokio::task::unconstrained(fixture.handle().view(key)));
        let mut others: Vec<_> = (0..=MAILBOX).map(|_| view()).collect();
        assert!(others.iter_mut().all(|other| other.as_mut().poll(&mut context).is_pending()));
        assert!(pin!(tokio::task::unconstrained(operation)).poll(&mut context).is_pending());
    });
    drop(go_on);
}

/// Waits until all enqueued writes are done.
fn barrier(fixture: &GatewayFixture) {
    let handle = fixture.handle().clone();
    fixture.runtime.block_on(async {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        handle.pairing_unlock(telegram()).await.unwrap();
    });
}

/// Runs `operation` once per await point, each time in a new gateway, until it finishes.
///
/// `committed`: whether the store has the change; `effect`: what must follow from it.
#[track_caller]
fn survives_being_dropped<T>(
    prepare: impl Fn(&GatewayFixture) -> T,
    operation: impl AsyncFn(&GatewayFixture, &T),
    committed: impl Fn(&GatewayFixture, &T) -> bool,
    effect: impl Fn(&GatewayFixture, &T),
) {
    let mut dropped_with_commit = 0;
    // The number of wake-ups depends on other threads: a series that never dropped behind the commit proves nothing.
    for _series in 0..MOST_SERIES {
        for polls in 1..MOST_POLLS {
            let fixture = GatewayFixture::new(|settings| settings.terminal = Some(TerminalConfig::default()));
            fixture.model.respond(|_| Answer::text("ran"));
            let prepared = prepare(&fixture);
            let dropped = dropped_after(&fixture, polls, operation(&fixture, &prepared));
            barrier(&fixture);
            if committed(&fixture, &prepared) {
                effect(&fixture, &prepared);
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
    let name = Some("Look".into());
    let schedule = schedule.into();
    NewJob { name, schedule, prompt: "work".into(), ..NewJob::default() }
}

fn create_yearly_job(fixture: &GatewayFixture) -> JobId {
    let created = fixture.runtime.block_on(fixture.handle().job_create(job("every 9000h"), Some(chat())));
    // The timer has seen the job.
    barrier(fixture);
    created.unwrap().job.id
}

fn run_request(run: &str, text: &str) -> RunRequest {
    RunRequest {
        run: run.into(),
        owner: "owner".into(),
        sees_all: false,
        target: RunTarget::Session("work".into()),
        text: text.into(),
        attachments: vec![],
        options: RunOptions { answers: true, ..RunOptions::default() },
        idempotency_key: None,
    }
}

fn run(fixture: &GatewayFixture) -> RunRow {
    fixture.read(|reader| reader.run(&RUN.into())).unwrap()
}

fn run_ended(fixture: &GatewayFixture, outcome: MessageOutcome) {
    eventually("ended", || run(fixture).end.filter(|end| end.outcome == outcome));
}

/// A run with an open approval request.
fn run_with_open_approval(fixture: &GatewayFixture) -> RunRow {
    fixture.model.script(Answer::tool("terminal", json!({ "command": "rm -rf ./x" })));
    let started = fixture.runtime.block_on(fixture.handle().start_run(run_request(RUN, "remove it")));
    started.unwrap();
    eventually("asked", || fixture.read(|reader| reader.all_open_questions()).pop());
    run(fixture)
}

fn expect_job_report(fixture: &GatewayFixture) {
    fixture.expect_messages(CHAT, &["⏰ Look\n\nran"]);
}

#[test]
fn job_run_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        create_yearly_job,
        async |fixture, id| drop(fixture.handle().job_run(id).await),
        |fixture, id| !fixture.read(|reader| reader.occurrences(id, 9)).is_empty(),
        |fixture, _| expect_job_report(fixture),
    );
}

#[test]
fn job_create_rearms_the_timer_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |fixture, ()| drop(fixture.handle().job_create(job("1s"), Some(chat())).await),
        |fixture, ()| !fixture.read(|reader| reader.jobs()).is_empty(),
        |fixture, ()| expect_job_report(fixture),
    );
}

#[test]
fn job_change_rearms_the_timer_after_the_caller_is_dropped() {
    survives_being_dropped(
        create_yearly_job,
        async |fixture, id| {
            let change = JobUpdate { schedule: Some("1s".into()), ..JobUpdate::default() };
            drop(fixture.handle().job_change(id, change).await);
        },
        |fixture, id| fixture.read(|reader| reader.job(id)).is_some_and(|(job, _)| job.schedule == "1s"),
        |fixture, _| expect_job_report(fixture),
    );
}

#[test]
fn post_reaches_every_chat_after_the_caller_is_dropped() {
    let chats = [CHAT, CHAT + 1, CHAT + 2];
    survives_being_dropped(
        |_| (),
        async |fixture, ()| {
            let to = chats.map(|chat| format!("telegram:{chat}")).join(",");
            let job = OutputJob::default();
            let mirror = MirrorMode::Assistant;
            let post =
                Notification { to, text: "the news".into(), job, origin: None, mirror, wait: Duration::ZERO };
            drop(fixture.handle().post(post).await);
        },
        |_, ()| true,
        |fixture, ()| chats.iter().for_each(|chat| fixture.expect_messages(*chat, &["the news"])),
    );
}

#[test]
fn outbox_retry_wakes_the_lane_after_the_caller_is_dropped() {
    let dead = |fixture: &GatewayFixture| -> OutboxId {
        fixture.telegram.on("sendMessage").times(1).does(Fault::status(400, "Bad Request: message is odd"));
        fixture.telegram.push_text(CHAT, CHAT, "hello");
        eventually("given up", || {
            fixture.read(|reader| reader.items_in(State::Dead, 9)).first().map(|item| item.id)
        })
    };
    survives_being_dropped(
        dead,
        async |fixture, id| drop(fixture.handle().outbox_retry(*id).await),
        |fixture, id| fixture.read(|reader| reader.item(*id)).is_some_and(|item| item.state != State::Dead),
        |fixture, _| fixture.expect_messages(CHAT, &["ran"]),
    );
}

#[test]
fn submit_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |fixture, ()| drop(fixture.handle().submit(support::web("page", "hello")).await),
        |fixture, ()| fixture.read(|reader| reader.newest()) > InboxId(0),
        |fixture, ()| {
            let asked = fixture.model.wait_until(SOON, |desk| (desk.requests().count() == 1).then_some(()));
            assert!(asked.is_some(), "the message waits for the next start");
        },
    );
}

#[test]
fn start_run_reaches_its_session_after_the_caller_is_dropped() {
    survives_being_dropped(
        |_| (),
        async |fixture, ()| drop(fixture.handle().start_run(run_request(RUN, "hello")).await),
        |fixture, ()| fixture.read(|reader| reader.run(&RUN.into())).is_some(),
        |fixture, ()| run_ended(fixture, MessageOutcome::Answered),
    );
}

#[test]
fn answer_run_releases_the_run_after_the_caller_is_dropped() {
    survives_being_dropped(
        run_with_open_approval,
        async |fixture, run| {
            let answer = Consent::approve("").unwrap();
            drop(fixture.handle().answer_run(run, answer).await);
        },
        |fixture, _| fixture.read(|reader| reader.all_open_questions()).is_empty(),
        |fixture, _| run_ended(fixture, MessageOutcome::Answered),
    );
}

#[test]
fn stop_run_ends_the_question_after_the_caller_is_dropped() {
    let fixture = GatewayFixture::new(|settings| settings.terminal = Some(TerminalConfig::default()));
    let asking = run_with_open_approval(&fixture);
    dropped_at_a_full_mailbox(&fixture, &asking.key, fixture.handle().stop_run(&asking));
    assert!(fixture.handle().is_stopping(&RUN.into()));
    run_ended(&fixture, MessageOutcome::Cancelled);
    assert!(fixture.read(|reader| reader.all_open_questions()).is_empty(), "its question waits");
}

#[test]
fn stop_turn_stops_the_turn_after_the_caller_is_dropped() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(CHAT, CHAT, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    let key = support::key(CHAT);
    dropped_at_a_full_mailbox(&fixture, &key, fixture.handle().stop_turn(&key));
    fixture.until("idle", |situation| situation.holders.is_empty().then_some(()));
    gate.open();
}
