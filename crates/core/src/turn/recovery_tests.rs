//! Late results, crashes while tools run, and the texts of turns that end early.

use super::*;

fn acting(ids: &[&str]) -> Turn {
    go(started(Delivery::Push), Event::Answered { attempt: 1, answer: calls(ids) }).0
}

fn recovered(clean: bool, repeatable: &[&str]) -> Event {
    let repeatable = repeatable.iter().map(ToString::to_string).collect();
    Event::Recovered { clean, repeatable, unstarted: vec![] }
}

#[test]
fn result_of_an_older_attempt_is_ignored() {
    let late = ended(&acting(&["a"]), "a");
    let (turn, _) = go(acting(&["a"]), recovered(true, &["a"]));
    assert_eq!(go(turn.clone(), late), (turn, Decision::default()));
}

#[test]
fn failure_of_an_older_call_is_ignored() {
    let (turn, _) = go(started(Delivery::Push), recovered(true, &[]));
    let late = Event::CallFailed { attempt: 1, notice: "no credit".into() };
    assert_eq!(go(turn.clone(), late), (turn, Decision::default()));
}

#[test]
fn crashes_while_tools_run_count_towards_giving_up() {
    let mut turn = acting(&["a"]);
    for crash in 1..Limits::default().crashes {
        let (next, decision) = go(turn, recovered(false, &["a"]));
        assert_eq!((next.crashes, begun(&decision)), (crash, vec!["a"]));
        turn = next;
    }
    let (planned, decision) = go(turn.clone(), recovered(true, &["a"]));
    assert_eq!((planned.crashes, begun(&decision)), (turn.crashes, vec!["a"]));
    let (turn, decision) = go(turn, recovered(false, &["a"]));
    assert_eq!((turn.phase, settled(&decision)[0].1), (Phase::Over, Outcome::Dead));
}

#[test]
fn repeated_call_gets_no_made_up_result() {
    let (_, decision) = go(acting(&["a", "b"]), recovered(false, &["b"]));
    assert_eq!((made_up(&decision), begun(&decision)), (vec![("a", EffectState::Unknown)], vec!["b"]));
}

#[test]
fn call_that_never_began_says_why() {
    let stopped = Event::Interrupted { shown: String::new(), unstarted: vec![] };
    let stalled = Event::Stalled { shown: String::new(), notice: "n".into() };
    for (event, why) in [
        (recovered(false, &[]), "the gateway was interrupted"),
        (stopped, "the user stopped the work"),
        (stalled, "did not come to an end"),
    ] {
        let (_, decision) = go(in_groups(&["a", "b"], &[1, 1]), event);
        let told = decision.writes.iter().any(|write| {
            matches!(write, Write::Append { message, .. } if message.tool_call_id.as_deref() == Some("b")
                && message.content.contains("Not started: ") && message.content.contains(why))
        });
        assert!(told, "{why}: {decision:?}");
    }
}

#[test]
fn notice_beside_the_answer_is_stored_and_owed() {
    for (delivery, owes) in [(Delivery::Push, 1), (Delivery::Pull, 0)] {
        let writes = started(delivery).notice("beside".into(), NOW);
        let stored = matches!(&writes[0], Write::Append { message, .. } if message.content == "beside");
        let owed = writes.iter().filter(|it| matches!(it, Write::Owe(draft) if draft.text == "beside"));
        assert_eq!((stored, owed.count()), (true, owes));
    }
}

#[test]
fn cut_off_answer_keeps_the_mark_for_resuming() {
    let clears = |answer: Answer, astray: u32| {
        let turn = Turn { astray, ..started(Delivery::Push) };
        let (turn, decision) = go(turn, Event::Answered { attempt: 1, answer });
        assert_eq!(turn.phase, Phase::Over);
        decision.writes.iter().any(|write| matches!(write, Write::ClearResume { .. }))
    };
    assert!(clears(says("whole"), 0));
    assert!(!clears(Answer { partial: true, ..says("half") }, 0));
    assert!(!clears(Answer { astray: true, ..calls(&["a"]) }, 2));
}

#[test]
fn empty_answer_becomes_a_sentence() {
    for empty in ["", " \n"] {
        let (_, decision) = go(started(Delivery::Push), Event::Answered { attempt: 1, answer: says(empty) });
        assert_eq!(owed(&decision), ["I have nothing to say to that. Please put it differently."]);
    }
}
