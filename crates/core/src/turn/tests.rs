use alloc::string::ToString;

use super::*;
use crate::ids::{SessionId, SessionKey};
use crate::message::{ChatType, Delivery, Platform, Route, Source};
use crate::transcript::Message;

#[path = "recovery_tests.rs"]
mod recovery;

const NOW: Millis = Millis(1_000);

fn turn(delivery: Delivery) -> Turn {
    let platform = Platform::parse("telegram").unwrap();
    let route = Route::to_source(&Source::new(platform, ChatType::Dm, "7"), delivery);
    let key = SessionKey("agent:main:telegram:dm:7".into());
    Turn::new(key, SessionId("s1".into()), route, vec![InboxId(41), InboxId(42)], NOW).unwrap()
}

fn started(delivery: Delivery) -> Turn {
    let rows = vec![Message::user("hi", NOW)];
    step(turn(delivery), TurnLimits::default(), NOW, Event::Started { rows }).0
}

fn apply(turn: Turn, event: Event) -> (Turn, Decision) {
    step(turn, TurnLimits::default(), NOW, event)
}

fn answer_with(text: &str) -> ModelAnswer {
    ModelAnswer { text: text.to_string(), ..calls(&[]) }
}

fn calls(ids: &[&str]) -> ModelAnswer {
    let call = |id: &&str| ToolCall { id: id.to_string(), name: "write_file".into(), arguments: "{}".into() };
    ModelAnswer {
        text: String::new(),
        calls: ids.iter().map(call).collect(),
        groups: vec![],
        unknown_tools_only: false,
        usage: UsageRecord::default(),
        partial: false,
    }
}

fn finished(turn: &Turn, call: &str) -> Event {
    Event::ToolFinished {
        attempt: turn.attempt,
        call: call.into(),
        report: report("ok", CallProgress::Changed),
        steer: vec![],
    }
}

fn report(content: &str, progress: CallProgress) -> ToolReport {
    ToolReport { content: content.into(), effect: EffectState::Known, progress }
}

fn enqueued(decision: &Decision) -> Vec<&str> {
    let text = |write: &'_ Write| match write {
        Write::Enqueue(draft) => Some(draft.text.clone()),
        _ => None,
    };
    decision
        .writes
        .iter()
        .filter_map(text)
        .map(|t| -> &str { alloc::boxed::Box::leak(t.into_boxed_str()) })
        .collect()
}

fn settled(decision: &Decision) -> Vec<(Vec<i64>, MessageOutcome)> {
    let settle = |write: &Write| match write {
        Write::SettleInbox { inbox, outcome, .. } => Some((inbox.iter().map(|id| id.0).collect(), *outcome)),
        _ => None,
    };
    decision.writes.iter().filter_map(settle).collect()
}

#[test]
fn writes_the_user_row_before_the_model_call() {
    let rows = vec![Message::user("hi", NOW)];
    let (turn, decision) = apply(turn(Delivery::Push), Event::Started { rows });
    assert!(matches!(decision.writes[0], Write::ClaimInbox { .. }));
    assert!(matches!(decision.writes[1], Write::Append { .. }));
    assert_eq!(decision.writes[2], Write::PutTurn(turn));
    assert_eq!(decision.effects, vec![TurnEffect::CallModel { attempt: 1, cutoff: None }]);
}

#[test]
fn commits_answer_delivery_and_end_together() {
    let turn = started(Delivery::Push);
    let (turn, decision) = apply(turn, Event::Answered { attempt: 1, answer: answer_with("hello") });
    assert_eq!(enqueued(&decision), ["hello"]);
    assert_eq!(
        settled(&decision),
        [(vec![41], MessageOutcome::Answered), (vec![42], MessageOutcome::Merged)]
    );
    assert!(decision.writes.iter().any(|w| matches!(w, Write::EndTurn { .. })));
    assert!(decision.writes.iter().any(|w| matches!(w, Write::ClearResume { .. })));
    assert_eq!(turn.phase, Phase::Over);
    assert_eq!(decision.effects.last(), Some(&TurnEffect::Finished { outcome: MessageOutcome::Answered }));
}

#[test]
fn enqueues_nothing_on_a_pull_route() {
    let (_, decision) =
        apply(started(Delivery::Pull), Event::Answered { attempt: 1, answer: answer_with("hello") });
    assert!(enqueued(&decision).is_empty());
    assert_eq!(settled(&decision).len(), 2);
}

#[test]
fn ignores_an_answer_to_an_older_attempt() {
    let (turn, _) = apply(
        started(Delivery::Push),
        Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] },
    );
    assert_eq!(turn.attempt, 2);
    let before = turn.clone();
    let (turn, decision) = apply(turn, Event::Answered { attempt: 1, answer: answer_with("late") });
    assert_eq!((turn, decision), (before, Decision::default()));
}

#[test]
fn ignores_events_after_the_end() {
    let (turn, _) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: answer_with("hello") });
    let (_, decision) = apply(turn, Event::Answered { attempt: 1, answer: answer_with("again") });
    assert_eq!(decision, Decision::default());
}

#[test]
fn stores_the_tool_calls_before_they_run() {
    let (turn, decision) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let stored = decision
        .writes
        .iter()
        .any(|w| matches!(w, Write::Append { message, .. } if message.tool_calls.len() == 2));
    assert!(stored);
    assert!(
        matches!(decision.effects.last(), Some(TurnEffect::RunTools { attempt: 2, calls }) if calls.len() == 2)
    );
    let (turn, decision) = apply(turn.clone(), finished(&turn, "b"));
    assert!(decision.effects.is_empty(), "one result is still awaited");
    let (turn, decision) = apply(turn.clone(), finished(&turn, "a"));
    assert_eq!(decision.effects, vec![TurnEffect::CallModel { attempt: 3, cutoff: None }]);
    assert_eq!(turn.phase, Phase::Thinking);
}

#[test]
fn stores_a_repeated_result_once() {
    let (turn, _) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let (turn, _) = apply(turn.clone(), finished(&turn, "a"));
    let (_, decision) = apply(turn.clone(), finished(&turn, "a"));
    assert_eq!(decision, Decision::default());
}

#[test]
fn reports_a_tool_lost_in_a_crash_as_unknown() {
    let (turn, _) = apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a"]) });
    let (_, decision) = apply(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] });
    let unknown = decision.writes.iter().any(
        |w| matches!(w, Write::Append { message, .. } if message.effect == Some(EffectState::Unknown) && message.content.contains("UNKNOWN")),
    );
    assert!(unknown);
    assert!(matches!(decision.effects[..], [TurnEffect::CallModel { .. }]));
}

#[test]
fn repeats_a_read_only_tool_lost_in_a_crash() {
    let (turn, _) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let (turn, decision) =
        apply(turn, Event::Recovered { clean: true, repeatable: vec!["b".into()], unstarted: vec![] });
    assert!(
        matches!(&decision.effects[..], [TurnEffect::RunTools { attempt: 3, calls }] if calls.len() == 1 && calls[0].id == "b")
    );
    let (_, decision) = apply(turn.clone(), finished(&turn, "b"));
    assert!(matches!(decision.effects[..], [TurnEffect::CallModel { .. }]));
}

#[test]
fn never_runs_a_call_whose_approval_was_pending() {
    let (turn, _) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let unstarted = vec!["a".into()];
    let missing = |decision: &Decision| -> Vec<(Option<EffectState>, bool)> {
        let rows = decision.writes.iter().filter_map(|w| match w {
            Write::Append { message, .. } if message.tool_call_id.is_some() => Some(message),
            _ => None,
        });
        rows.map(|row| (row.effect, row.content.contains("NOT RUN"))).collect()
    };
    let want = [(Some(EffectState::Cancelled), true), (Some(EffectState::Unknown), false)];
    let repeatable = vec![];
    let (_, decision) =
        apply(turn.clone(), Event::Recovered { clean: true, repeatable, unstarted: unstarted.clone() });
    assert_eq!(missing(&decision), want);
    assert!(matches!(decision.effects[..], [TurnEffect::CallModel { .. }]));
    let (_, decision) = apply(turn, Event::Interrupted { shown: String::new(), unstarted });
    assert_eq!(missing(&decision), want);
}

#[test]
fn gives_up_a_turn_after_repeated_crashes() {
    let mut turn = started(Delivery::Push);
    for _ in 0..2 {
        turn = apply(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] }).0;
        assert_eq!(turn.phase, Phase::Thinking);
    }
    let (turn, decision) =
        apply(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] });
    assert_eq!(turn.phase, Phase::Over);
    assert_eq!(settled(&decision)[0].1, MessageOutcome::Dead);
    let id = turn.id;
    let notice = &enqueued(&decision)[0];
    assert!(
        notice.contains("stopped trying") && notice.contains(&format!("/retry {id} <new text>")),
        "{notice}"
    );
    let buttons = decision.writes.iter().find_map(|write| match write {
        Write::Enqueue(draft) => Some(draft.buttons.iter().map(|it| it.data.clone()).collect::<Vec<_>>()),
        _other => None,
    });
    assert_eq!(buttons, Some(vec![format!("/retry {id}"), format!("/drop {id}")]));
}

#[test]
fn does_not_count_a_planned_stop_as_a_crash() {
    let mut turn = started(Delivery::Push);
    for _ in 0..10 {
        turn = apply(turn, Event::Recovered { clean: true, repeatable: vec![], unstarted: vec![] }).0;
    }
    assert_eq!((turn.crashes, turn.phase), (0, Phase::Thinking));
}

#[test]
fn keeps_the_user_row_and_a_notice_after_a_failed_call() {
    let (_, decision) =
        apply(started(Delivery::Push), Event::CallFailed { attempt: 1, notice: "no credit".into() });
    assert_eq!(enqueued(&decision), ["no credit"]);
    assert_eq!(settled(&decision)[0].1, MessageOutcome::Refused);
    assert!(!decision.writes.iter().any(|w| matches!(w, Write::ClearResume { .. })));
}

#[test]
fn keeps_the_visible_part_of_a_stopped_answer() {
    let (_, decision) =
        apply(started(Delivery::Push), Event::Interrupted { shown: "half an ans".into(), unstarted: vec![] });
    let closed = decision
        .writes
        .iter()
        .any(|w| matches!(w, Write::ClosePreview { text, .. } if text == "half an ans\n\n(stopped)"));
    assert!(closed);
    assert_eq!(settled(&decision)[0].1, MessageOutcome::Cancelled);
}

#[test]
fn stores_a_silence_marker_without_sending_it() {
    let (_, decision) =
        apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: answer_with("NO_REPLY") });
    assert!(enqueued(&decision).is_empty());
    assert!(decision.writes.iter().any(|w| matches!(w, Write::ClosePreview { text, .. } if text.is_empty())));
}

#[test]
fn claims_a_steered_message_with_the_next_result() {
    let (turn, _) = apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a"]) });
    let steer = vec![(InboxId(50), "in French please".to_string())];
    let end = report("ok", CallProgress::Changed);
    let event = Event::ToolFinished { attempt: turn.attempt, call: "a".into(), report: end, steer };
    let (turn, decision) = apply(turn, event);
    assert_eq!(turn.inbox.last(), Some(&InboxId(50)));
    assert!(matches!(&decision.writes[0], Write::ClaimInbox { inbox, .. } if inbox == &[InboxId(50)]));
    assert!(
        matches!(&decision.writes[1], Write::Append { message, .. } if message.content.contains("in French please"))
    );
}

#[test]
fn ends_with_a_summary_at_the_step_limit() {
    let limits = TurnLimits { steps: 1, ..TurnLimits::default() };
    for (answer, shown) in
        [(answer_with("So far."), "So far.\n\n(I have stopped here"), (calls(&["b"]), "(I have stopped here")]
    {
        let turn = started(Delivery::Push);
        let (turn, _) = step(turn, limits, NOW, Event::Answered { attempt: 1, answer: calls(&["a"]) });
        let (turn, decision) = step(turn.clone(), limits, NOW, finished(&turn, "a"));
        assert_eq!(
            decision.effects,
            vec![TurnEffect::CallModel { attempt: 3, cutoff: Some(Cutoff::StepLimit) }]
        );
        let (turn, decision) = step(turn, limits, NOW, Event::Answered { attempt: 3, answer });
        assert_eq!(turn.phase, Phase::Over);
        let text = enqueued(&decision)[0];
        assert!(text.starts_with(shown) && text.contains("number of steps"), "{text}");
    }
}

#[test]
fn warns_about_loops_and_stops_if_configured() {
    let patience = LoopLimits { stop: Some(LoopLimits::STOP), ..LoopLimits::default() };
    let limits = TurnLimits { loops: patience, ..TurnLimits::default() };
    let mut turn = started(Delivery::Push);
    let mut warned = vec![];
    for round in 0..5 {
        let asked = Event::Answered { attempt: turn.attempt, answer: calls(&["a"]) };
        turn = step(turn, limits, NOW, asked).0;
        let end = report("no", CallProgress::Failed);
        let event =
            Event::ToolFinished { attempt: turn.attempt, call: "a".into(), report: end, steer: vec![] };
        let (next, decision) = step(turn, limits, NOW, event);
        turn = next;
        warned.push(decision.writes.iter().any(
            |w| matches!(w, Write::Append { message, .. } if message.content.contains("[Tool loop warning: ")),
        ));
        let cutoff = (round == 4).then_some(Cutoff::LoopDetected);
        assert_eq!(decision.effects, vec![TurnEffect::CallModel { attempt: turn.attempt, cutoff }]);
    }
    assert_eq!(warned, [false, true, true, true, true]);
    let answer = Event::Answered { attempt: turn.attempt, answer: answer_with("It does not work.") };
    let (_, decision) = step(turn, limits, NOW, answer);
    assert!(enqueued(&decision)[0].ends_with("Tell me how to go on.)"));
}

#[test]
fn ends_after_three_answers_with_unknown_tools_only() {
    let mut turn = started(Delivery::Push);
    for round in [1, 2, 0, 1, 2, 3] {
        let answer = ModelAnswer { unknown_tools_only: round > 0, ..calls(&["a"]) };
        let (next, decision) = apply(turn.clone(), Event::Answered { attempt: turn.attempt, answer });
        assert_eq!(next.phase == Phase::Over, round == 3);
        turn = match round {
            3 => {
                assert!(enqueued(&decision)[0].contains("tools that I do not have"));
                return;
            }
            _ => apply(next.clone(), finished(&next, "a")).0,
        };
    }
}

fn in_groups(ids: &[&str], groups: &[u32]) -> Turn {
    let answer = ModelAnswer { groups: groups.to_vec(), ..calls(ids) };
    apply(started(Delivery::Push), Event::Answered { attempt: 1, answer }).0
}

fn started_calls(decision: &Decision) -> Vec<&str> {
    let calls = decision.effects.iter().flat_map(|effect| match effect {
        TurnEffect::RunTools { calls, .. } => calls.as_slice(),
        TurnEffect::CallModel { .. } | TurnEffect::Deliver { .. } | TurnEffect::Finished { .. } => &[],
    });
    calls.map(|call| call.id.as_str()).collect()
}

/// Result rows without a tool result, with their effect state.
fn missing_results(decision: &Decision) -> Vec<(&str, EffectState)> {
    let rows = decision.writes.iter().filter_map(|write| match write {
        Write::Append { message, .. } => message.tool_call_id.as_deref().zip(message.effect),
        _ => None,
    });
    rows.collect()
}

#[test]
fn starts_a_group_in_the_commit_of_the_previous_result() {
    let turn = in_groups(&["a", "b", "c", "d"], &[2, 1, 1]);
    let (turn, decision) = apply(turn.clone(), finished(&turn, "c"));
    assert_eq!(decision, Decision::default(), "it has not been started");
    let (turn, decision) = apply(turn.clone(), finished(&turn, "b"));
    assert_eq!(started_calls(&decision), Vec::<&str>::new());
    let (turn, decision) = apply(turn.clone(), finished(&turn, "a"));
    assert_eq!(started_calls(&decision), ["c"]);
    let (turn, decision) = apply(turn.clone(), finished(&turn, "c"));
    assert_eq!(started_calls(&decision), ["d"]);
    let (_, decision) = apply(turn.clone(), finished(&turn, "d"));
    assert!(matches!(decision.effects[..], [TurnEffect::CallModel { .. }]));
}

#[test]
fn lists_running_calls_of_the_current_group() {
    let running = |turn: &Turn| turn.running_calls().into_iter().map(|call| call.id).collect::<Vec<_>>();
    assert_eq!(running(&started(Delivery::Push)), Vec::<String>::new(), "the model is asked");
    let turn = in_groups(&["a", "b", "c"], &[2, 1]);
    assert_eq!(running(&turn), ["a", "b"]);
    let turn = apply(turn.clone(), finished(&turn, "a")).0;
    assert_eq!(running(&turn), ["b"]);
    let turn = apply(turn.clone(), finished(&turn, "b")).0;
    assert_eq!(running(&turn), ["c"]);
}

#[test]
fn starts_no_later_group_after_a_lost_call() {
    let turn = in_groups(&["a", "b", "c"], &[1, 1, 1]);
    let turn = apply(turn.clone(), finished(&turn, "a")).0;
    let (_, decision) =
        apply(turn, Event::Recovered { clean: false, repeatable: vec!["c".into()], unstarted: vec![] });
    assert_eq!(missing_results(&decision), [("b", EffectState::Unknown), ("c", EffectState::Cancelled)]);
    assert!(matches!(decision.effects[..], [TurnEffect::CallModel { .. }]));
}

#[test]
fn runs_later_groups_after_a_harmless_crash() {
    let turn = in_groups(&["a", "b"], &[1, 1]);
    let (turn, decision) =
        apply(turn, Event::Recovered { clean: false, repeatable: vec!["a".into()], unstarted: vec![] });
    assert_eq!((started_calls(&decision), missing_results(&decision)), (vec!["a"], vec![]));
    let (_, decision) = apply(turn.clone(), finished(&turn, "a"));
    assert_eq!(started_calls(&decision), ["b"]);
}

#[test]
fn reports_calls_that_never_started_when_stopped() {
    for event in [
        Event::Interrupted { shown: String::new(), unstarted: vec![] },
        Event::Stalled { shown: String::new(), notice: "nothing happens".into() },
    ] {
        let stalled = matches!(event, Event::Stalled { .. });
        let (turn, decision) = apply(in_groups(&["a", "b"], &[1, 1]), event);
        assert_eq!(turn.phase, Phase::Over);
        assert_eq!(missing_results(&decision), [("a", EffectState::Unknown), ("b", EffectState::Cancelled)]);
        let closed = decision.writes.iter().any(
            |w| matches!(w, Write::Append { message, .. } if message.content == "(stopped before an answer)"),
        );
        assert!(closed, "the next message of the user follows an answer");
        assert_eq!(enqueued(&decision), if stalled { vec!["nothing happens"] } else { vec![] });
    }
}

#[test]
fn commits_a_compaction_before_the_next_model_call() {
    let turn = started(Delivery::Push);
    let event = |attempt| Event::Compacted {
        attempt,
        compaction: Compaction::default(),
        usage: UsageRecord::default(),
    };
    let (turn, decision) = apply(turn, event(1));
    assert!(matches!(
        decision.writes[..],
        [Write::AddUsage { .. }, Write::Compact { .. }, Write::PutTurn(_)]
    ));
    assert_eq!(decision.effects, [TurnEffect::CallModel { attempt: 2, cutoff: None }]);
    assert_eq!((turn.compactions, turn.step), (1, 0));
    let (turn, late) = apply(turn, event(1));
    assert_eq!((turn.compactions, late), (1, Decision::default()), "an old pass is ignored");
}
