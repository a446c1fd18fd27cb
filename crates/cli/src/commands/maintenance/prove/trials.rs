//! The trials: one fault each, and what must hold afterwards.

#![expect(clippy::disallowed_methods, reason = "a trial kills the gateway at a random moment")]

use std::time::Duration;

use petasos_core::admission::MAX_QUEUED;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use serde_json::json;

use super::fixture::{AnswerMode, TIMEOUT, TrialFixture, TrialRng, user_text, wait_for};

/// The inner error is a failed check; the outer one means that the trial could not run.
type TrialOutcome = Result<Result<(), String>, String>;

#[derive(Debug)]
pub(super) struct Trial {
    pub(super) name: &'static str,
    pub(super) promises: &'static [&'static str],
    pub(super) run: fn(&mut TrialRng) -> TrialOutcome,
}

pub(super) const TRIALS: &[Trial] = &[
    Trial { name: "killed at a random moment", promises: &["G1", "G2", "G3", "G4", "G5"], run: killed },
    Trial {
        name: "killed while an answer is streamed",
        promises: &["G2", "G3", "G4"],
        run: killed_streaming,
    },
    Trial { name: "killed during the model call", promises: &["G1", "G2", "G3"], run: killed_thinking },
    Trial { name: "the network is cut before the answer", promises: &["G2", "G4", "G7"], run: cut_off },
    Trial { name: "too many requests", promises: &["G4"], run: rate_limited },
    Trial { name: "the acknowledgement of a send is lost", promises: &["G4"], run: lost_send },
    Trial { name: "the acknowledgement of a final edit is lost", promises: &["G4"], run: lost_edit },
    Trial { name: "the same message is delivered again", promises: &["G3"], run: delivered_twice },
    Trial { name: "a drain is cancelled", promises: &["G6", "G2"], run: drained },
    Trial {
        name: "background work ends while the gateway is down",
        promises: &["G8", "G3"],
        run: background_completion,
    },
    Trial { name: "the disk is full", promises: &["G1", "G2"], run: full_disk },
    Trial { name: "more messages than can be answered", promises: &["G9", "G2"], run: overload },
    Trial { name: "old conversations are archived", promises: &["G9"], run: retention },
];

const CHATS: std::ops::Range<i64> = 101..105;
const ONE_CHAT: std::ops::Range<i64> = 101..102;

fn ready(answers: AnswerMode) -> Result<TrialFixture, String> {
    let mut fixture = TrialFixture::new(answers)?;
    fixture.start()?;
    Ok(fixture)
}

fn killed(rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = ready(AnswerMode::Whole)?;
    CHATS.for_each(|chat| drop(fixture.send_hello(chat)));
    std::thread::sleep(Duration::from_millis(rng.below(300)));
    fixture.kill();
    fixture.start()?;
    Ok(fixture.check_answers(CHATS))
}

fn killed_streaming(rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = ready(AnswerMode::Streamed)?;
    ONE_CHAT.for_each(|chat| drop(fixture.send_hello(chat)));
    std::thread::sleep(Duration::from_millis(300 + rng.below(1200)));
    fixture.kill();
    fixture.start()?;
    Ok(fixture.check_answers(ONE_CHAT))
}

fn killed_thinking(_rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = TrialFixture::new(AnswerMode::Whole)?;
    let gate = fixture.model.gate(Point::Before);
    fixture.start()?;
    CHATS.for_each(|chat| drop(fixture.send_hello(chat)));
    if !gate.wait_for(CHATS.count() as u64, TIMEOUT) {
        return Ok(Err("the model was never called".into()));
    }
    fixture.kill();
    gate.open();
    fixture.start()?;
    let result = fixture.check_answers(CHATS);
    let calls = fixture.model.read(|state| state.request_count());
    Ok(result.and_then(|()| match calls {
        8 => Ok(()),
        calls => Err(format!("expected eight model calls for four interrupted turns, found {calls}")),
    }))
}

fn cut_off(rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = TrialFixture::new(AnswerMode::Whole)?;
    let gate = fixture.model.gate(Point::Before);
    fixture.start()?;
    CHATS.for_each(|chat| drop(fixture.send_hello(chat)));
    if !gate.wait_for(CHATS.count() as u64, TIMEOUT) {
        return Ok(Err("the model was never called".into()));
    }
    fixture.telegram.down();
    gate.open();
    std::thread::sleep(Duration::from_millis(200 + rng.below(800)));
    fixture.telegram.up().map_err(|error| format!("the chat cannot come back: {error}"))?;
    Ok(fixture.check_answers(CHATS))
}

fn rate_limited(_rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Whole)?;
    fixture.telegram.on("sendMessage").times(2).does(Fault::too_many(1));
    CHATS.for_each(|chat| drop(fixture.send_hello(chat)));
    let result = fixture.check_answers(CHATS);
    let marked_answers: usize = CHATS.map(|chat| fixture.marked_answers(chat)).sum();
    let result = result.and_then(|()| fixture.check_fault_applied());
    Ok(result.and_then(|()| {
        if marked_answers == 0 {
            Ok(())
        } else {
            Err("an answer was marked as a duplicate without need".into())
        }
    }))
}

fn lost_send(_rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Whole)?;
    fixture.telegram.on("sendMessage").times(1).does(Fault::ResetAfter);
    ONE_CHAT.for_each(|chat| drop(fixture.send_hello(chat)));
    let copied = wait_for(|| fixture.marked_answers(101) == 1 || fixture.unmarked_answers(101) > 1);
    Ok(fixture
        .check_answers(ONE_CHAT)
        .and_then(|()| if copied { Ok(()) } else { Err("no marked copy".into()) }))
}

fn lost_edit(_rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Streamed)?;
    fixture.telegram.on("editMessageText").times(2).does(Fault::ResetAfter);
    ONE_CHAT.for_each(|chat| drop(fixture.send_hello(chat)));
    let result = fixture.check_answers(ONE_CHAT).and_then(|()| fixture.check_fault_applied());
    let texts = fixture.telegram.texts(101);
    Ok(result.and_then(|()| match texts.as_slice() {
        [one] if one == "echo: hello from 101" => Ok(()),
        other => Err(format!("expected one message, found {}", other.len())),
    }))
}

fn delivered_twice(_rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Whole)?;
    fixture.telegram.on("getUpdates").times(3).does(Fault::duplicate_updates());
    CHATS.for_each(|chat| drop(fixture.send_hello(chat)));
    let result = fixture.check_answers(CHATS).and_then(|()| fixture.check_fault_applied());
    let calls = fixture.model.read(|state| state.request_count());
    Ok(result
        .and_then(|()| if calls == 4 { Ok(()) } else { Err(format!("{calls} turns for four messages")) }))
}

fn drained(_rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Whole)?;
    let marker = fixture.home.join(".drain_request.json");
    let failed = |error: std::io::Error| format!("the marker: {error}");
    std::fs::write(&marker, "{}").map_err(failed)?;
    let state = fixture.home.join("gateway_state.json");
    let says = |word: &str| std::fs::read_to_string(&state).is_ok_and(|text| text.contains(word));
    if !wait_for(|| says("\"draining\"")) {
        return Ok(Err("the gateway did not start to drain".into()));
    }
    fixture.send_hello(201);
    if !wait_for(|| fixture.telegram.texts(201).iter().any(|text| text.contains("draining"))) {
        return Ok(Err("a message during the drain got no notice".into()));
    }
    std::fs::remove_file(&marker).map_err(failed)?;
    if !wait_for(|| says("\"running\"")) {
        return Ok(Err("the gateway did not return to running after the drain".into()));
    }
    ONE_CHAT.for_each(|chat| drop(fixture.send_hello(chat)));
    Ok(fixture.check_answers(ONE_CHAT))
}

/// The background process outlives its gateway; the next gateway reports its completion.
fn background_completion(rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = TrialFixture::new(AnswerMode::Background)?;
    fixture.model.respond(|request| {
        if request.messages().last().is_some_and(|row| row["role"] == "tool") {
            return Answer::text("it runs");
        }
        match user_text(&request.last_user) {
            "work" => {
                let command = "sleep 0.4; echo the end of it";
                let call = json!({ "command": command, "background": true, "notify_on_complete": true });
                Answer::tool("terminal", call)
            }
            reported if reported.contains("the end of it") => Answer::text("reported: it has ended"),
            other => Answer::text(format!("echo: {other}")),
        }
    });
    fixture.start()?;
    fixture.telegram.push_text(101, 101, "work");
    if !wait_for(|| fixture.telegram.texts(101).iter().any(|text| text.ends_with("it runs"))) {
        return Ok(Err("the background work never started".into()));
    }
    fixture.kill();
    std::thread::sleep(Duration::from_millis(rng.below(800)));
    fixture.start()?;
    let reported =
        || fixture.telegram.texts(101).into_iter().filter(|text| text.ends_with("reported: it has ended"));
    if !wait_for(|| reported().count() > 0) {
        return Ok(Err("the completion of the work was not reported".into()));
    }
    let settled = fixture.wait_until_idle();
    let unmarked_answers = reported().filter(|text| text.starts_with("reported")).count();
    Ok(settled.and_then(|()| {
        if unmarked_answers <= 1 { Ok(()) } else { Err(format!("reported {unmarked_answers} times")) }
    }))
}

fn full_disk(_rng: &mut TrialRng) -> TrialOutcome {
    let mut fixture = ready(AnswerMode::Whole)?;
    fixture.send_hello(301);
    let before = fixture.check_answers(301..302);
    fixture.kill();
    let size = |name: &str| std::fs::metadata(fixture.home.join(name)).map_or(0, |found| found.len());
    let largest = size("petasos.db").max(size("petasos.db-wal"));
    let polls = fixture.telegram.calls_of("getUpdates").len();
    fixture.launch(Some(largest / 1024 + 24))?;
    // Larger than the remaining space.
    let long = "more than fits ".repeat(14_000);
    fixture.telegram.push_text(101, 101, long);
    // Two further polls: the gateway could have acknowledged the message by now.
    let waited = wait_for(|| fixture.telegram.calls_of("getUpdates").len() > polls + 2);
    if fixture.telegram.pending_updates() == 0 {
        return Ok(before.and(Err("a message was acknowledged that could not be stored".into())));
    }
    fixture.kill();
    fixture.start()?;
    let answered =
        wait_for(|| fixture.telegram.texts(101).iter().any(|text| text.contains("more than fits")));
    Ok(before.and_then(|()| match (waited, answered) {
        (true, true) => Ok(()),
        (false, _) => Err("the gateway stopped polling".into()),
        (true, false) => Err("the message was not answered once there was space again".into()),
    }))
}

fn overload(rng: &mut TrialRng) -> TrialOutcome {
    let fixture = ready(AnswerMode::Whole)?;
    let gate = fixture.model.gate(Point::Before);
    let count = 60 + rng.below(40);
    for number in 0..count {
        fixture.telegram.push_text(101, 101, format!("number {number}"));
    }
    let taken = wait_for(|| fixture.telegram.pending_updates() == 0);
    // Nothing is answered yet, so every accepted message is in the queue.
    let bounded = wait_for(|| fixture.queued().is_some_and(|queued| queued <= MAX_QUEUED as u64));
    let within = fixture.check_limits();
    gate.open();
    let settled = fixture.wait_until_idle().and(within).and_then(|()| fixture.check_limits());
    let settled =
        if bounded { settled } else { Err("more messages are waiting than the queue may hold".into()) };
    let reported = !fixture.telegram.texts(101).is_empty();
    Ok(settled.and_then(|()| match (taken, reported) {
        (true, true) => Ok(()),
        (false, _) => Err("the gateway stopped accepting messages".into()),
        (_, false) => Err("no refusal was reported".into()),
    }))
}

/// Ten conversations are older than the limit and are archived; today's stays.
fn retention(_rng: &mut TrialRng) -> TrialOutcome {
    const OLD: usize = 10;
    let mut fixture = TrialFixture::new(AnswerMode::Aging)?;
    fixture.store_old_conversations(OLD)?;
    fixture.start()?;
    ONE_CHAT.for_each(|chat| drop(fixture.send_hello(chat)));
    let result = fixture.check_answers(ONE_CHAT);
    let left = wait_for(|| fixture.stored_conversations() == Some(1) && fixture.archives() == OLD);
    let stored = fixture.stored_conversations();
    let archived = fixture.archives();
    let result = result.and_then(|()| fixture.check_limits());
    if left {
        return Ok(result);
    }
    Ok(Err(format!("of {OLD} old conversations {archived} were archived; {stored:?} are stored")))
}
