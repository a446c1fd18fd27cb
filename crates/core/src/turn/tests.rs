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
    let route = Route::back_to(&Source::new(platform, ChatType::Dm, "7"), delivery);
    let key = SessionKey("agent:main:telegram:dm:7".into());
    Turn::new(key, SessionId("s1".into()), route, vec![InboxId(41), InboxId(42)], NOW).unwrap()
}

fn started(delivery: Delivery) -> Turn {
    let rows = vec![Message::user("hi", NOW)];
    step(turn(delivery), Limits::default(), NOW, Event::Started { rows }).0
}

fn go(turn: Turn, event: Event) -> (Turn, Decision) {
    step(turn, Limits::default(), NOW, event)
}

fn says(text: &str) -> Answer {
    Answer { text: text.to_string(), ..calls(&[]) }
}

fn calls(ids: &[&str]) -> Answer {
    let call = |id: &&str| ToolCall { id: id.to_string(), name: "write_file".into(), arguments: "{}".into() };
    Answer {
        text: String::new(),
        calls: ids.iter().map(call).collect(),
        groups: vec![],
        astray: false,
        bill: Bill::default(),
        partial: false,
    }
}

fn ended(turn: &Turn, call: &str) -> Event {
    Event::ToolEnded {
        attempt: turn.attempt,
        call: call.into(),
        end: end("ok", Progress::Changed),
        steer: vec![],
    }
}

fn end(content: &str, progress: Progress) -> ToolEnd {
    ToolEnd { content: content.into(), effect: EffectState::Known, progress }
}

fn owed(decision: &Decision) -> Vec<&str> {
    let text = |write: &'_ Write| match write {
        Write::Owe(draft) => Some(draft.text.clone()),
        _ => None,
    };
    decision
        .writes
        .iter()
        .filter_map(text)
        .map(|t| -> &str { alloc::boxed::Box::leak(t.into_boxed_str()) })
        .collect()
}

fn settled(decision: &Decision) -> Vec<(Vec<i64>, Outcome)> {
    let settle = |write: &Write| match write {
        Write::SettleInbox { inbox, outcome, .. } => Some((inbox.iter().map(|id| id.0).collect(), *outcome)),
        _ => None,
    };
    decision.writes.iter().filter_map(settle).collect()
}

#[test]
fn the_user_row_is_written_before_the_model_is_asked() {
    let rows = vec![Message::user("hi", NOW)];
    let (turn, decision) = go(turn(Delivery::Push), Event::Started { rows });
    assert!(matches!(decision.writes[0], Write::ClaimInbox { .. }));
    assert!(matches!(decision.writes[1], Write::Append { .. }));
    assert_eq!(decision.writes[2], Write::PutTurn(turn));
    assert_eq!(decision.effects, vec![Effect::CallModel { attempt: 1, closing: None }]);
}

#[test]
fn the_answer_its_parcel_and_the_end_are_one_decision() {
    let turn = started(Delivery::Push);
    let (turn, decision) = go(turn, Event::Answered { attempt: 1, answer: says("hello") });
    assert_eq!(owed(&decision), ["hello"]);
    assert_eq!(settled(&decision), [(vec![41], Outcome::Answered), (vec![42], Outcome::Merged)]);
    assert!(decision.writes.iter().any(|w| matches!(w, Write::EndTurn { .. })));
    assert!(decision.writes.iter().any(|w| matches!(w, Write::ClearResume { .. })));
    assert_eq!(turn.phase, Phase::Over);
    assert_eq!(decision.effects.last(), Some(&Effect::Finished { outcome: Outcome::Answered }));
}

#[test]
fn a_reader_who_comes_for_the_answer_is_owed_no_parcel() {
    let (_, decision) = go(started(Delivery::Pull), Event::Answered { attempt: 1, answer: says("hello") });
    assert!(owed(&decision).is_empty());
    assert_eq!(settled(&decision).len(), 2);
}

#[test]
fn an_answer_to_an_older_attempt_changes_nothing() {
    let (turn, _) =
        go(started(Delivery::Push), Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] });
    assert_eq!(turn.attempt, 2);
    let before = turn.clone();
    let (turn, decision) = go(turn, Event::Answered { attempt: 1, answer: says("late") });
    assert_eq!((turn, decision), (before, Decision::default()));
}

#[test]
fn nothing_happens_after_the_end() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: says("hello") });
    let (_, decision) = go(turn, Event::Answered { attempt: 1, answer: says("again") });
    assert_eq!(decision, Decision::default());
}

#[test]
fn the_assistant_row_that_asks_for_tools_is_stored_before_they_run() {
    let (turn, decision) =
        go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let stored = decision
        .writes
        .iter()
        .any(|w| matches!(w, Write::Append { message, .. } if message.tool_calls.len() == 2));
    assert!(stored);
    assert!(
        matches!(decision.effects.last(), Some(Effect::RunTools { attempt: 2, calls }) if calls.len() == 2)
    );
    let (turn, decision) = go(turn.clone(), ended(&turn, "b"));
    assert!(decision.effects.is_empty(), "one result is still awaited");
    let (turn, decision) = go(turn.clone(), ended(&turn, "a"));
    assert_eq!(decision.effects, vec![Effect::CallModel { attempt: 3, closing: None }]);
    assert_eq!(turn.phase, Phase::Thinking);
}

#[test]
fn a_result_that_comes_twice_is_stored_once() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let (turn, _) = go(turn.clone(), ended(&turn, "a"));
    let (_, decision) = go(turn.clone(), ended(&turn, "a"));
    assert_eq!(decision, Decision::default());
}

#[test]
fn a_tool_lost_in_a_crash_is_reported_as_unknown_and_not_repeated() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a"]) });
    let (_, decision) = go(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] });
    let unknown = decision.writes.iter().any(
        |w| matches!(w, Write::Append { message, .. } if message.effect == Some(EffectState::Unknown) && message.content.contains("UNKNOWN")),
    );
    assert!(unknown);
    assert!(matches!(decision.effects[..], [Effect::CallModel { .. }]));
}

#[test]
fn a_read_only_tool_lost_in_a_crash_is_run_again() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let (turn, decision) =
        go(turn, Event::Recovered { clean: true, repeatable: vec!["b".into()], unstarted: vec![] });
    assert!(
        matches!(&decision.effects[..], [Effect::RunTools { attempt: 3, calls }] if calls.len() == 1 && calls[0].id == "b")
    );
    let (_, decision) = go(turn.clone(), ended(&turn, "b"));
    assert!(matches!(decision.effects[..], [Effect::CallModel { .. }]));
}

#[test]
fn a_call_that_waited_for_consent_was_not_run_and_is_not_run_again() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a", "b"]) });
    let unstarted = vec!["a".into()];
    let told = |decision: &Decision| -> Vec<(Option<EffectState>, bool)> {
        let rows = decision.writes.iter().filter_map(|w| match w {
            Write::Append { message, .. } if message.tool_call_id.is_some() => Some(message),
            _ => None,
        });
        rows.map(|row| (row.effect, row.content.contains("NOT RUN"))).collect()
    };
    let want = [(Some(EffectState::Cancelled), true), (Some(EffectState::Unknown), false)];
    let repeatable = vec![];
    let (_, decision) =
        go(turn.clone(), Event::Recovered { clean: true, repeatable, unstarted: unstarted.clone() });
    assert_eq!(told(&decision), want);
    assert!(matches!(decision.effects[..], [Effect::CallModel { .. }]));
    let (_, decision) = go(turn, Event::Interrupted { shown: String::new(), unstarted });
    assert_eq!(told(&decision), want);
}

#[test]
fn a_turn_that_keeps_killing_the_process_is_given_up_with_a_notice() {
    let mut turn = started(Delivery::Push);
    for _ in 0..2 {
        turn = go(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] }).0;
        assert_eq!(turn.phase, Phase::Thinking);
    }
    let (turn, decision) = go(turn, Event::Recovered { clean: false, repeatable: vec![], unstarted: vec![] });
    assert_eq!(turn.phase, Phase::Over);
    assert_eq!(settled(&decision)[0].1, Outcome::Dead);
    let (id, notice) = (turn.id, &owed(&decision)[0]);
    assert!(
        notice.contains("stopped trying") && notice.contains(&format!("/retry {id} <new text>")),
        "{notice}"
    );
    let buttons = decision.writes.iter().find_map(|write| match write {
        Write::Owe(draft) => Some(draft.buttons.iter().map(|it| it.data.clone()).collect::<Vec<_>>()),
        _other => None,
    });
    assert_eq!(buttons, Some(vec![format!("/retry {id}"), format!("/drop {id}")]));
}

#[test]
fn a_planned_stop_does_not_count_as_a_crash() {
    let mut turn = started(Delivery::Push);
    for _ in 0..10 {
        turn = go(turn, Event::Recovered { clean: true, repeatable: vec![], unstarted: vec![] }).0;
    }
    assert_eq!((turn.crashes, turn.phase), (0, Phase::Thinking));
}

#[test]
fn a_failed_call_leaves_the_user_row_and_a_notice() {
    let (_, decision) =
        go(started(Delivery::Push), Event::CallFailed { attempt: 1, notice: "no credit".into() });
    assert_eq!(owed(&decision), ["no credit"]);
    assert_eq!(settled(&decision)[0].1, Outcome::Refused);
    assert!(!decision.writes.iter().any(|w| matches!(w, Write::ClearResume { .. })));
}

#[test]
fn stopping_keeps_what_was_shown_and_says_so() {
    let (_, decision) =
        go(started(Delivery::Push), Event::Interrupted { shown: "half an ans".into(), unstarted: vec![] });
    let closed = decision
        .writes
        .iter()
        .any(|w| matches!(w, Write::ClosePreview { text, .. } if text == "half an ans\n\n(stopped)"));
    assert!(closed);
    assert_eq!(settled(&decision)[0].1, Outcome::Cancelled);
}

#[test]
fn a_silence_marker_is_stored_and_never_shown() {
    let (_, decision) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: says("NO_REPLY") });
    assert!(owed(&decision).is_empty());
    assert!(decision.writes.iter().any(|w| matches!(w, Write::ClosePreview { text, .. } if text.is_empty())));
}

#[test]
fn a_steered_message_joins_the_turn_with_the_next_result() {
    let (turn, _) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(&["a"]) });
    let steer = vec![(InboxId(50), "in French please".to_string())];
    let end = end("ok", Progress::Changed);
    let event = Event::ToolEnded { attempt: turn.attempt, call: "a".into(), end, steer };
    let (turn, decision) = go(turn, event);
    assert_eq!(turn.inbox.last(), Some(&InboxId(50)));
    assert!(matches!(&decision.writes[0], Write::ClaimInbox { inbox, .. } if inbox == &[InboxId(50)]));
    assert!(
        matches!(&decision.writes[1], Write::Append { message, .. } if message.content.contains("in French please"))
    );
}

#[test]
fn when_the_steps_are_used_up_one_more_answer_sums_up_without_tools_and_says_so() {
    let limits = Limits { steps: 1, ..Limits::default() };
    for (answer, shown) in
        [(says("So far."), "So far.\n\n(I have stopped here"), (calls(&["b"]), "(I have stopped here")]
    {
        let turn = started(Delivery::Push);
        let (turn, _) = step(turn, limits, NOW, Event::Answered { attempt: 1, answer: calls(&["a"]) });
        let (turn, decision) = step(turn.clone(), limits, NOW, ended(&turn, "a"));
        assert_eq!(decision.effects, vec![Effect::CallModel { attempt: 3, closing: Some(Closing::Spent) }]);
        let (turn, decision) = step(turn, limits, NOW, Event::Answered { attempt: 3, answer });
        assert_eq!(turn.phase, Phase::Over);
        let text = owed(&decision)[0];
        assert!(text.starts_with(shown) && text.contains("number of steps"), "{text}");
    }
}

#[test]
fn a_turn_that_goes_round_in_circles_is_told_and_stopped_where_somebody_wants_it() {
    let patience = Patience { stop: Some(Patience::STOP), ..Patience::default() };
    let limits = Limits { patience, ..Limits::default() };
    let mut turn = started(Delivery::Push);
    let mut told = vec![];
    for round in 0..5 {
        let asked = Event::Answered { attempt: turn.attempt, answer: calls(&["a"]) };
        turn = step(turn, limits, NOW, asked).0;
        let end = end("no", Progress::Failed);
        let event = Event::ToolEnded { attempt: turn.attempt, call: "a".into(), end, steer: vec![] };
        let (next, decision) = step(turn, limits, NOW, event);
        turn = next;
        told.push(decision.writes.iter().any(
            |w| matches!(w, Write::Append { message, .. } if message.content.contains("[Tool loop warning: ")),
        ));
        let closing = (round == 4).then_some(Closing::Circling);
        assert_eq!(decision.effects, vec![Effect::CallModel { attempt: turn.attempt, closing }]);
    }
    assert_eq!(told, [false, true, true, true, true]);
    let answer = Event::Answered { attempt: turn.attempt, answer: says("It does not work.") };
    let (_, decision) = step(turn, limits, NOW, answer);
    assert!(owed(&decision)[0].ends_with("Tell me how to go on.)"));
}

#[test]
fn the_third_answer_in_a_row_without_a_usable_call_ends_the_turn() {
    let mut turn = started(Delivery::Push);
    for round in [1, 2, 0, 1, 2, 3] {
        let answer = Answer { astray: round > 0, ..calls(&["a"]) };
        let (next, decision) = go(turn.clone(), Event::Answered { attempt: turn.attempt, answer });
        assert_eq!(next.phase == Phase::Over, round == 3);
        turn = match round {
            3 => {
                assert!(owed(&decision)[0].contains("tools that I do not have"));
                return;
            }
            _ => go(next.clone(), ended(&next, "a")).0,
        };
    }
}

fn in_groups(ids: &[&str], groups: &[u32]) -> Turn {
    let answer = Answer { groups: groups.to_vec(), ..calls(ids) };
    go(started(Delivery::Push), Event::Answered { attempt: 1, answer }).0
}

fn begun(decision: &Decision) -> Vec<&str> {
    let calls = decision.effects.iter().flat_map(|effect| match effect {
        Effect::RunTools { calls, .. } => calls.as_slice(),
        Effect::CallModel { .. } | Effect::Deliver { .. } | Effect::Finished { .. } => &[],
    });
    calls.map(|call| call.id.as_str()).collect()
}

/// The results that a decision makes up, and what they say of the effect.
fn made_up(decision: &Decision) -> Vec<(&str, EffectState)> {
    let rows = decision.writes.iter().filter_map(|write| match write {
        Write::Append { message, .. } => message.tool_call_id.as_deref().zip(message.effect),
        _ => None,
    });
    rows.collect()
}

#[test]
fn a_group_starts_in_the_commit_of_the_last_result_before_it() {
    let turn = in_groups(&["a", "b", "c", "d"], &[2, 1, 1]);
    let (turn, decision) = go(turn.clone(), ended(&turn, "c"));
    assert_eq!(decision, Decision::default(), "it has not been started");
    let (turn, decision) = go(turn.clone(), ended(&turn, "b"));
    assert_eq!(begun(&decision), Vec::<&str>::new());
    let (turn, decision) = go(turn.clone(), ended(&turn, "a"));
    assert_eq!(begun(&decision), ["c"]);
    let (turn, decision) = go(turn.clone(), ended(&turn, "c"));
    assert_eq!(begun(&decision), ["d"]);
    let (_, decision) = go(turn.clone(), ended(&turn, "d"));
    assert!(matches!(decision.effects[..], [Effect::CallModel { .. }]));
}

#[test]
fn running_calls_are_those_of_the_current_group() {
    let running = |turn: &Turn| turn.running_calls().into_iter().map(|call| call.id).collect::<Vec<_>>();
    assert_eq!(running(&started(Delivery::Push)), Vec::<String>::new(), "the model is asked");
    let turn = in_groups(&["a", "b", "c"], &[2, 1]);
    assert_eq!(running(&turn), ["a", "b"]);
    let turn = go(turn.clone(), ended(&turn, "a")).0;
    assert_eq!(running(&turn), ["b"]);
    let turn = go(turn.clone(), ended(&turn, "b")).0;
    assert_eq!(running(&turn), ["c"]);
}

#[test]
fn after_a_crash_only_what_was_under_way_is_unknown_and_nothing_behind_it_is_started() {
    let turn = in_groups(&["a", "b", "c"], &[1, 1, 1]);
    let turn = go(turn.clone(), ended(&turn, "a")).0;
    let (_, decision) =
        go(turn, Event::Recovered { clean: false, repeatable: vec!["c".into()], unstarted: vec![] });
    assert_eq!(made_up(&decision), [("b", EffectState::Unknown), ("c", EffectState::Cancelled)]);
    assert!(matches!(decision.effects[..], [Effect::CallModel { .. }]));
}

#[test]
fn after_a_crash_that_cost_nothing_the_rest_is_run_as_planned() {
    let turn = in_groups(&["a", "b"], &[1, 1]);
    let (turn, decision) =
        go(turn, Event::Recovered { clean: false, repeatable: vec!["a".into()], unstarted: vec![] });
    assert_eq!((begun(&decision), made_up(&decision)), (vec!["a"], vec![]));
    let (_, decision) = go(turn.clone(), ended(&turn, "a"));
    assert_eq!(begun(&decision), ["b"]);
}

#[test]
fn who_stops_a_turn_learns_what_was_never_started() {
    for event in [
        Event::Interrupted { shown: String::new(), unstarted: vec![] },
        Event::Stalled { shown: String::new(), notice: "nothing happens".into() },
    ] {
        let stalled = matches!(event, Event::Stalled { .. });
        let (turn, decision) = go(in_groups(&["a", "b"], &[1, 1]), event);
        assert_eq!(turn.phase, Phase::Over);
        assert_eq!(made_up(&decision), [("a", EffectState::Unknown), ("b", EffectState::Cancelled)]);
        let closed = decision.writes.iter().any(
            |w| matches!(w, Write::Append { message, .. } if message.content == "(stopped before an answer)"),
        );
        assert!(closed, "the next message of the user follows an answer");
        assert_eq!(owed(&decision), if stalled { vec!["nothing happens"] } else { vec![] });
    }
}

#[test]
fn making_room_is_committed_before_the_model_is_asked_again() {
    let turn = started(Delivery::Push);
    let event = |attempt| Event::Relieved { attempt, relief: Relief::default(), bill: Bill::default() };
    let (turn, decision) = go(turn, event(1));
    assert!(matches!(decision.writes[..], [Write::Spend { .. }, Write::Relieve { .. }, Write::PutTurn(_)]));
    assert_eq!(decision.effects, [Effect::CallModel { attempt: 2, closing: None }]);
    assert_eq!((turn.relieved, turn.step), (1, 0));
    let (turn, late) = go(turn, event(1));
    assert_eq!((turn.relieved, late), (1, Decision::default()), "an old pass is ignored");
}
