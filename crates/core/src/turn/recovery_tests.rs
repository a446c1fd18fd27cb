//! Late results, crashes during tool calls, and the texts of turns that end early.

use super::*;

fn acting(ids: &[&str]) -> Turn {
    apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(ids) }).0
}

fn recovered(clean: bool, repeatable: &[&str]) -> Event {
    let repeatable = repeatable.iter().map(ToString::to_string).collect();
    Event::Recovered { clean, repeatable, unstarted: vec![] }
}

#[test]
fn result_of_an_older_attempt_is_ignored() {
    let late = finished(&acting(&["a"]), "a");
    let (turn, _) = apply(acting(&["a"]), recovered(true, &["a"]));
    assert_eq!(apply(turn.clone(), late), (turn, Decision::default()));
}

#[test]
fn failure_of_an_older_call_is_ignored() {
    let (turn, _) = apply(started(Delivery::Push), recovered(true, &[]));
    let late = Event::CallFailed { attempt: 1, notice: "no credit".into() };
    assert_eq!(apply(turn.clone(), late), (turn, Decision::default()));
}

#[test]
fn crashes_while_tools_run_count_towards_giving_up() {
    let mut turn = acting(&["a"]);
    for crash in 1..TurnLimits::default().crashes {
        let (next, decision) = apply(turn, recovered(false, &["a"]));
        assert_eq!((next.crashes, started_calls(&decision)), (crash, vec!["a"]));
        turn = next;
    }
    let (planned, decision) = apply(turn.clone(), recovered(true, &["a"]));
    assert_eq!((planned.crashes, started_calls(&decision)), (turn.crashes, vec!["a"]));
    let (turn, decision) = apply(turn, recovered(false, &["a"]));
    assert_eq!((turn.phase, settled(&decision)[0].1), (Phase::Over, MessageOutcome::Dead));
}

#[test]
fn stores_no_missing_result_for_a_repeated_call() {
    let (_, decision) = apply(acting(&["a", "b"]), recovered(false, &["b"]));
    assert_eq!(
        (missing_results(&decision), started_calls(&decision)),
        (vec![("a", EffectState::Unknown)], vec!["b"])
    );
}

#[test]
fn explains_why_a_call_was_not_started() {
    let stopped = Event::Interrupted { shown: String::new(), unstarted: vec![] };
    let stalled = Event::Stalled { shown: String::new(), notice: "n".into() };
    for (event, why) in [
        (recovered(false, &[]), "the gateway was interrupted"),
        (stopped, "the user stopped the work"),
        (stalled, "did not end"),
    ] {
        let (_, decision) = apply(in_groups(&["a", "b"], &[1, 1]), event);
        let explained = decision.writes.iter().any(|write| {
            matches!(write, Write::Append { message, .. } if message.tool_call_id.as_deref() == Some("b")
                && message.content.contains("Not started: ") && message.content.contains(why))
        });
        assert!(explained, "{why}: {decision:?}");
    }
}

#[test]
fn stores_and_enqueues_a_notice_beside_the_answer() {
    for (delivery, items) in [(Delivery::Push, 1), (Delivery::Pull, 0)] {
        let writes = started(delivery).notice("beside".into(), NOW);
        let stored = matches!(&writes[0], Write::Append { message, .. } if message.content == "beside");
        let owed = writes.iter().filter(|it| matches!(it, Write::Enqueue(draft) if draft.text == "beside"));
        assert_eq!((stored, owed.count()), (true, items));
    }
}

#[test]
fn keeps_the_resume_mark_after_a_partial_answer() {
    let clears = |answer: ModelAnswer, astray: u32| {
        let turn = Turn { unknown_tool_answers: astray, ..started(Delivery::Push) };
        let (turn, decision) = apply(turn, Event::Answered { attempt: 1, answer });
        assert_eq!(turn.phase, Phase::Over);
        decision.writes.iter().any(|write| matches!(write, Write::ClearResume { .. }))
    };
    assert!(clears(answer_with("whole"), 0));
    assert!(!clears(ModelAnswer { partial: true, ..answer_with("half") }, 0));
    assert!(!clears(ModelAnswer { unknown_tools_only: true, ..calls(&["a"]) }, 2));
}

#[test]
fn replaces_an_empty_answer_by_a_sentence() {
    for empty in ["", " \n"] {
        let (_, decision) =
            apply(started(Delivery::Push), Event::Answered { attempt: 1, answer: answer_with(empty) });
        assert_eq!(enqueued(&decision), ["I have no answer to that. Please put it differently."]);
    }
}
