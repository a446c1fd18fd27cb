use alloc::string::ToString;
use alloc::vec;

use super::*;

const NOW: Millis = Millis(1_000);

fn request(id: &str) -> ApprovalRequest {
    ApprovalRequest::new(id, vec![Category::RecursiveDelete], NOW, TIMEOUT)
}

fn queue(ids: &[&str]) -> RequestQueue {
    ids.iter().fold(RequestQueue::default(), |queue, id| queue.step(NOW, Event::Requested(request(id))).0)
}

fn settled(id: &str, ending: ApprovalOutcome) -> QueueEffect {
    QueueEffect::Settle { id: id.to_string(), ending }
}

fn answer(text: &str) -> Event {
    Event::Answered(ApprovalReply::approve(text).unwrap())
}

#[test]
fn answers_the_oldest_request_or_all() {
    let (queue, effects) = queue(&["a", "b", "c"]).step(NOW, answer(""));
    assert_eq!(effects, [settled("a", ApprovalOutcome::Allowed { choice: Choice::Once })]);
    let (queue, effects) = queue.step(NOW, answer("all"));
    assert_eq!(effects.len(), 2);
    assert_eq!(effects[1], settled("c", ApprovalOutcome::Allowed { choice: Choice::Once }));
    assert!(queue.waiting().is_empty());
}

#[test]
fn button_answers_its_own_request() {
    let reply = ButtonData::decode("ea:deny:b").unwrap();
    let (queue, effects) = queue(&["a", "b"]).step(NOW, Event::Answered(reply.into()));
    assert_eq!(effects, [settled("b", ApprovalOutcome::Denied { reason: None })]);
    assert_eq!(queue.waiting()[0].id, "a");
}

#[test]
fn remembers_a_lasting_approval_before_the_command() {
    let (_, effects) = queue(&["a"]).step(NOW, answer("always"));
    let remember =
        QueueEffect::Remember { categories: vec![Category::RecursiveDelete], choice: Choice::Always };
    assert_eq!(effects, [remember, settled("a", ApprovalOutcome::Allowed { choice: Choice::Always })]);
}

#[test]
fn allows_obscured_commands_only_once() {
    let mut open = request("a");
    open.categories.push(Category::Unreadable);
    assert_eq!(open.choices(), [Choice::Once, Choice::Deny]);
    let mut advised = request("b");
    advised.advised_against = true;
    assert_eq!(advised.choices(), [Choice::Once, Choice::Deny]);
    let queue = RequestQueue::default().step(NOW, Event::Requested(open)).0;
    let (_, effects) = queue.step(NOW, answer("always"));
    assert_eq!(effects, [settled("a", ApprovalOutcome::Allowed { choice: Choice::Once })]);
}

#[test]
fn distinguishes_timeout_denial_and_loss() {
    let late = NOW.after(TIMEOUT);
    let (empty, effects) = queue(&["a"]).step(late, Event::Tick);
    assert_eq!(effects, [settled("a", ApprovalOutcome::TimedOut)]);
    assert_eq!(empty.step(late, answer("")).1, [], "an answer that comes too late changes nothing");

    let no = Event::Answered(ApprovalReply::deny("use trash"));
    assert_eq!(
        queue(&["a"]).step(NOW, no).1,
        [settled("a", ApprovalOutcome::Denied { reason: Some("use trash".to_string()) })]
    );

    assert_eq!(queue(&["a"]).step(late, Event::Restarted).1, [settled("a", ApprovalOutcome::Lost)]);
    let gone = Event::NotShown { id: "a".to_string() };
    assert_eq!(queue(&["a"]).step(NOW, gone).1, [settled("a", ApprovalOutcome::Lost)]);
    assert_eq!(
        queue(&["a"]).step(NOW, Event::TurnOver).1,
        [settled("a", ApprovalOutcome::Denied { reason: None })]
    );
}

#[test]
fn ignores_an_approval_at_the_deadline() {
    let (_, effects) = queue(&["a"]).step(NOW.after(TIMEOUT), answer(""));
    assert_eq!(effects, [settled("a", ApprovalOutcome::TimedOut)]);
}

#[test]
fn shows_a_request_once_and_bounds_the_queue() {
    let (queue, effects) = queue(&["a"]).step(NOW, Event::Requested(request("a")));
    assert_eq!((queue.waiting().len(), effects), (1, vec![]));
    let full = (0..MAX_PENDING).fold(RequestQueue::default(), |queue, n| {
        queue.step(NOW, Event::Requested(request(&n.to_string()))).0
    });
    let (full, effects) = full.step(NOW, Event::Requested(request("more")));
    assert_eq!(effects, [settled("more", ApprovalOutcome::Lost)]);
    assert_eq!(full.waiting().len(), MAX_PENDING);
    assert_eq!(full.due(), Some(NOW.after(TIMEOUT)));
}

#[test]
fn round_trips_through_storage() {
    let queue = queue(&["a", "b"]);
    let stored = serde_json::to_string(&queue).unwrap();
    assert_eq!(serde_json::from_str::<RequestQueue>(&stored).unwrap(), queue);
    let mut remembered = RememberedApprovals::default();
    remembered.record("s", &[Category::Git], Choice::Session);
    remembered.record("s", &[Category::Sql, Category::Obscured], Choice::Always);
    let stored = serde_json::to_string(&remembered).unwrap();
    let mut again: RememberedApprovals = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, remembered);
    assert!(again.covers("s", Category::Git) && !again.covers("t", Category::Git));
    assert!(again.covers("t", Category::Sql) && !again.covers("t", Category::Obscured));
    again.forget("s");
    assert!(!again.covers("s", Category::Git));
    assert_eq!(again.always().collect::<Vec<_>>(), ["sql_destructive"]);
}

#[test]
fn encodes_buttons_and_rejects_foreign_data() {
    let reply = ButtonData { choice: Choice::Session, id: "0198c7f2-7a8b_x".to_string() };
    assert_eq!(ButtonData::decode(&reply.encode().unwrap()), Some(reply));
    let long = ButtonData { choice: Choice::Once, id: "x".repeat(60) };
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
        assert_eq!(ButtonData::decode(data), None, "{data}");
    }
}

#[test]
fn parses_words_and_commands() {
    assert_eq!(ApprovalReply::from_word(" OK ").map(|it| it.choice), Some(Choice::Once));
    assert_eq!(ApprovalReply::from_word("👎").map(|it| it.choice), Some(Choice::Deny));
    assert_eq!(ApprovalReply::from_word("always").map(|it| it.choice), Some(Choice::Always));
    assert_eq!(ApprovalReply::from_word("yes please"), None);
    assert_eq!(
        ApprovalReply::approve("all session"),
        Some(ApprovalReply { which: RequestSelector::All, choice: Choice::Session, reason: None })
    );
    assert_eq!(ApprovalReply::approve("everything"), None);
    assert_eq!(ApprovalReply::approve("deny"), None);
    let denied = ApprovalReply::deny(&["all ", &"x".repeat(300)].concat());
    assert_eq!(
        (denied.which, denied.reason.map(|reason| reason.len())),
        (RequestSelector::All, Some(MAX_REASON_CHARS))
    );
    assert_eq!(ApprovalReply::deny("  ").reason, None);
}

#[test]
fn blocked_text_states_the_missing_consent() {
    let blocked = |ending: ApprovalOutcome| ending.blocked_text().unwrap();
    assert!(blocked(ApprovalOutcome::TimedOut).contains("silence is not consent"));
    assert!(
        blocked(ApprovalOutcome::Denied { reason: Some("use trash".to_string()) }).ends_with("use trash")
    );
    for ending in [ApprovalOutcome::Denied { reason: None }, ApprovalOutcome::TimedOut, ApprovalOutcome::Lost]
    {
        let text = blocked(ending);
        assert!(text.starts_with("BLOCKED: ") && text.contains("Do not run it again"), "{text}");
    }
    assert_eq!(ApprovalOutcome::Allowed { choice: Choice::Once }.blocked_text(), None);
}
