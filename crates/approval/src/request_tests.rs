//! Questions, their endings and what is remembered of them.

use alloc::string::ToString;
use alloc::vec;

use super::*;

const NOW: Millis = Millis(1_000);

fn ask(id: &str) -> Ask {
    Ask::new(id, vec![Category::RecursiveDelete], NOW, TIMEOUT)
}

fn queue(ids: &[&str]) -> Queue {
    ids.iter().fold(Queue::default(), |queue, id| queue.step(NOW, Event::Asked(ask(id))).0)
}

fn settled(id: &str, ending: Ending) -> Effect {
    Effect::Settle { id: id.to_string(), ending }
}

fn answer(text: &str) -> Event {
    Event::Answered(Answer::approve(text).unwrap())
}

#[test]
fn the_oldest_is_answered_first_and_then_all_the_rest() {
    let (queue, effects) = queue(&["a", "b", "c"]).step(NOW, answer(""));
    assert_eq!(effects, [settled("a", Ending::Allowed { choice: Choice::Once })]);
    let (queue, effects) = queue.step(NOW, answer("all"));
    assert_eq!(effects.len(), 2);
    assert_eq!(effects[1], settled("c", Ending::Allowed { choice: Choice::Once }));
    assert!(queue.waiting().is_empty());
}

#[test]
fn a_button_answers_its_own_question() {
    let reply = Reply::decode("ea:deny:b").unwrap();
    let (queue, effects) = queue(&["a", "b"]).step(NOW, Event::Answered(reply.into()));
    assert_eq!(effects, [settled("b", Ending::Denied { reason: None })]);
    assert_eq!(queue.waiting()[0].id, "a");
}

#[test]
fn a_wider_yes_is_remembered_before_the_command_runs() {
    let (_, effects) = queue(&["a"]).step(NOW, answer("always"));
    let remember = Effect::Remember { categories: vec![Category::RecursiveDelete], choice: Choice::Always };
    assert_eq!(effects, [remember, settled("a", Ending::Allowed { choice: Choice::Always })]);
}

#[test]
fn what_could_be_anything_is_allowed_once_however_wide_the_yes() {
    let mut open = ask("a");
    open.categories.push(Category::Unreadable);
    assert_eq!(open.choices(), [Choice::Once, Choice::Deny]);
    let mut advised = ask("b");
    advised.advised_against = true;
    assert_eq!(advised.choices(), [Choice::Once, Choice::Deny]);
    let queue = Queue::default().step(NOW, Event::Asked(open)).0;
    let (_, effects) = queue.step(NOW, answer("always"));
    assert_eq!(effects, [settled("a", Ending::Allowed { choice: Choice::Once })]);
}

#[test]
fn silence_a_no_and_a_lost_question_are_three_endings() {
    let late = NOW.after(TIMEOUT);
    let (empty, effects) = queue(&["a"]).step(late, Event::Tick);
    assert_eq!(effects, [settled("a", Ending::TimedOut)]);
    assert_eq!(empty.step(late, answer("")).1, [], "an answer that comes too late changes nothing");

    let no = Event::Answered(Answer::deny("use trash"));
    assert_eq!(
        queue(&["a"]).step(NOW, no).1,
        [settled("a", Ending::Denied { reason: Some("use trash".to_string()) })]
    );

    assert_eq!(queue(&["a"]).step(late, Event::Restarted).1, [settled("a", Ending::Lost)]);
    let gone = Event::NotShown { id: "a".to_string() };
    assert_eq!(queue(&["a"]).step(NOW, gone).1, [settled("a", Ending::Lost)]);
    assert_eq!(queue(&["a"]).step(NOW, Event::TurnOver).1, [settled("a", Ending::Denied { reason: None })]);
}

#[test]
fn a_yes_at_the_last_moment_does_not_beat_the_clock() {
    let (_, effects) = queue(&["a"]).step(NOW.after(TIMEOUT), answer(""));
    assert_eq!(effects, [settled("a", Ending::TimedOut)]);
}

#[test]
fn the_same_question_is_shown_once_and_a_full_queue_takes_no_more() {
    let (queue, effects) = queue(&["a"]).step(NOW, Event::Asked(ask("a")));
    assert_eq!((queue.waiting().len(), effects), (1, vec![]));
    let full = (0..MOST_WAITING)
        .fold(Queue::default(), |queue, n| queue.step(NOW, Event::Asked(ask(&n.to_string()))).0);
    let (full, effects) = full.step(NOW, Event::Asked(ask("more")));
    assert_eq!(effects, [settled("more", Ending::Lost)]);
    assert_eq!(full.waiting().len(), MOST_WAITING);
    assert_eq!(full.due(), Some(NOW.after(TIMEOUT)));
}

#[test]
fn what_is_stored_comes_back() {
    let queue = queue(&["a", "b"]);
    let stored = serde_json::to_string(&queue).unwrap();
    assert_eq!(serde_json::from_str::<Queue>(&stored).unwrap(), queue);
    let mut remembered = Remembered::default();
    remembered.learn("s", &[Category::Git], Choice::Session);
    remembered.learn("s", &[Category::Sql, Category::Obscured], Choice::Always);
    let stored = serde_json::to_string(&remembered).unwrap();
    let mut again: Remembered = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, remembered);
    assert!(again.covers("s", Category::Git) && !again.covers("t", Category::Git));
    assert!(again.covers("t", Category::Sql) && !again.covers("t", Category::Obscured));
    again.forget("s");
    assert!(!again.covers("s", Category::Git));
    assert_eq!(again.always().collect::<Vec<_>>(), ["sql_destructive"]);
}

#[test]
fn buttons_fit_and_strange_ones_are_nobodys() {
    let reply = Reply { choice: Choice::Session, id: "0198c7f2-7a8b_x".to_string() };
    assert_eq!(Reply::decode(&reply.encode().unwrap()), Some(reply));
    let long = Reply { choice: Choice::Once, id: "x".repeat(60) };
    assert_eq!(long.encode(), None);
    for data in [
        "",
        "ea:",
        "ea:once",
        "ea:once:",
        "ea:maybe:a",
        "sc:once:a",
        "ea:once:a b",
        "ea:once:a:b",
        &"ea:once:x".repeat(9),
    ] {
        assert_eq!(Reply::decode(data), None, "{data}");
    }
}

#[test]
fn words_and_commands_are_understood() {
    assert_eq!(Answer::from_word(" OK ").map(|it| it.choice), Some(Choice::Once));
    assert_eq!(Answer::from_word("👎").map(|it| it.choice), Some(Choice::Deny));
    assert_eq!(Answer::from_word("always").map(|it| it.choice), Some(Choice::Always));
    assert_eq!(Answer::from_word("yes please"), None);
    assert_eq!(
        Answer::approve("all session"),
        Some(Answer { which: Which::All, choice: Choice::Session, reason: None })
    );
    assert_eq!(Answer::approve("everything"), None);
    assert_eq!(Answer::approve("deny"), None);
    let denied = Answer::deny(&["all ", &"x".repeat(300)].concat());
    assert_eq!((denied.which, denied.reason.map(|reason| reason.len())), (Which::All, Some(MOST_REASON)));
    assert_eq!(Answer::deny("  ").reason, None);
}

#[test]
fn the_model_is_told_that_there_was_no_consent() {
    let told = |ending: Ending| ending.blocked().unwrap();
    assert!(told(Ending::TimedOut).contains("silence is not consent"));
    assert!(told(Ending::Denied { reason: Some("use trash".to_string()) }).ends_with("use trash"));
    for ending in [Ending::Denied { reason: None }, Ending::TimedOut, Ending::Lost] {
        let text = told(ending);
        assert!(text.starts_with("BLOCKED: ") && text.contains("Do not run it again"), "{text}");
    }
    assert_eq!(Ending::Allowed { choice: Choice::Once }.blocked(), None);
}
