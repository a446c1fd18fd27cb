use alloc::string::{String, ToString};
use alloc::vec;

use super::*;
use crate::ids::OutboxId;
use crate::message::{ChatType, Delivery, Platform, Route, Source};
use crate::outbox::{Draft, Kind};

const NOW: Millis = Millis(1_000_000);

fn item(state: State, preview: Preview, sent: usize, doubtful: bool) -> Item {
    let platform = Platform::parse("telegram").unwrap();
    let route = Route::to_source(&Source::new(platform, ChatType::Dm, "7"), Delivery::Push);
    let text = String::from("hello");
    let draft = Draft { route, session_key: None, turn: None, kind: Kind::Answer, text, buttons: vec![] };
    Item {
        id: OutboxId(1),
        draft,
        state,
        preview,
        sent: (0..sent).map(|n| n.to_string()).collect(),
        doubtful,
        attempts: 0,
        tried_at: None,
        retired_keys: 0,
        not_before: Millis(0),
        created_at: NOW,
        last_error: None,
    }
}

#[track_caller]
fn check(item: &Item, parts: usize, want: LaneAction) {
    assert_eq!(
        next_action(item, parts, None, NOW),
        want,
        "{:?} {:?} sent {}",
        item.state,
        item.preview,
        item.sent.len()
    );
}

#[test]
fn sends_unacknowledged_parts_in_order() {
    check(&item(State::Due, Preview::None, 0, false), 3, LaneAction::Send { part: 0, marked: false });
    check(&item(State::Due, Preview::None, 2, false), 3, LaneAction::Send { part: 2, marked: false });
    check(&item(State::Due, Preview::None, 3, false), 3, LaneAction::Finish);
}

#[test]
fn marks_a_part_with_an_unknown_outcome() {
    check(&item(State::Due, Preview::None, 1, true), 3, LaneAction::Send { part: 1, marked: true });
}

#[test]
fn does_not_mark_a_copy_with_a_recognised_key() {
    let memory = Duration::from_secs(120);
    for (tried, memory, marked) in [
        (Some(NOW.before(Duration::from_secs(119))), Some(memory), false),
        (Some(NOW.before(Duration::from_secs(120))), Some(memory), true),
        (Some(NOW.before(Duration::from_secs(1))), None, true),
        (None, Some(memory), true),
        // The clock was set back.
        (Some(NOW.after(Duration::from_secs(1))), Some(memory), true),
    ] {
        let item = Item { tried_at: tried, ..item(State::Due, Preview::None, 0, true) };
        assert_eq!(
            next_action(&item, 1, memory, NOW),
            LaneAction::Send { part: 0, marked },
            "{tried:?} {memory:?}"
        );
    }
}

#[test]
fn replaces_a_key_with_an_unknowable_outcome() {
    let memory = Some(Duration::from_secs(120));
    let tried = Item { tried_at: Some(NOW), ..item(State::Due, Preview::None, 0, true) };
    let send = LaneAction::Send { part: 0, marked: false };
    assert_eq!(next_action(&tried, 1, memory, NOW), send, "asking again may tell");
    assert!(!retires_key(&send, Reached::Maybe) && retires_key(&send, Reached::Unknowable));
    assert!(
        !retires_key(&LaneAction::EditPreview { message: "9".into() }, Reached::Unknowable),
        "repeating that is harmless"
    );
    let mut keys = vec![idempotency_key(&tried, 0, false)];
    for spent in 1..=3 {
        let item = Item { retired_keys: spent, ..tried.clone() };
        assert_eq!(next_action(&item, 1, memory, NOW), LaneAction::Send { part: 0, marked: true });
        keys.push(idempotency_key(&item, 0, true));
    }
    let unique: alloc::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(unique.len(), 4, "{keys:?}");
}

#[test]
fn edits_a_visible_preview_without_a_mark() {
    let shown = Preview::Shown("9".into());
    check(&item(State::Due, shown.clone(), 0, false), 2, LaneAction::EditPreview { message: "9".into() });
    check(&item(State::Due, shown.clone(), 1, false), 2, LaneAction::Send { part: 1, marked: false });
    check(&item(State::Due, shown, 0, false), 0, LaneAction::DeletePreview { message: "9".into() });
}

#[test]
fn marks_only_the_first_part_after_an_unknown_preview() {
    check(&item(State::Due, Preview::Requested, 0, false), 2, LaneAction::Send { part: 0, marked: true });
    check(&item(State::Due, Preview::Requested, 1, false), 2, LaneAction::Send { part: 1, marked: false });
}

#[test]
fn waits_while_the_turn_is_streaming() {
    check(&item(State::Streaming, Preview::Shown("9".into()), 0, false), 1, LaneAction::Wait);
}

#[track_caller]
fn after(act: &LaneAction, fault: Fault, reached: Reached, want: FailureAction) {
    let due = item(State::Sending, Preview::None, 0, false);
    assert_eq!(after_failure(&due, act, fault, reached, NOW, 0), want, "{act:?} {fault:?} {reached:?}");
}

#[test]
fn unknown_outcome_is_doubtful_unless_idempotent() {
    let second = Some(Duration::from_secs(1));
    let later = Fault::Later { after: second };
    let at = Millis(NOW.0 + 1000);
    let send = LaneAction::Send { part: 0, marked: false };
    after(&send, later, Reached::Maybe, FailureAction::Retry { at, doubtful: true });
    after(&send, later, Reached::No, FailureAction::Retry { at, doubtful: false });
    let replace = LaneAction::EditPreview { message: "9".into() };
    after(&replace, later, Reached::Maybe, FailureAction::Retry { at, doubtful: false });
}

#[test]
fn gives_up_refused_and_old_items() {
    let send = LaneAction::Send { part: 0, marked: false };
    after(&send, Fault::Refused, Reached::No, FailureAction::DeadLetter { doubtful: false });
    let old = item(State::Sending, Preview::None, 0, false);
    let much_later = NOW.after(MAX_AGE).after(Duration::from_secs(1));
    let later = Fault::Later { after: None };
    assert_eq!(
        after_failure(&old, &send, later, Reached::No, much_later, 0),
        FailureAction::DeadLetter { doubtful: false }
    );
}

#[test]
fn previews_wait_for_the_budget() {
    let mut budget = RateBudget::new(Duration::from_secs(1));
    (0..5).for_each(|_| budget.spend(NOW));
    assert_eq!(budget.preview_at(NOW), NOW.after(Duration::from_secs(3)));
}

#[test]
fn limits_waits_to_an_hour() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let send = LaneAction::Send { part: 0, marked: false };
    let flood = Fault::Later { after: Some(year) };
    after(&send, flood, Reached::No, FailureAction::Retry { at: NOW.after(MAX_WAIT), doubtful: false });
}

#[test]
fn makes_everything_due_after_the_clock_was_set_back() {
    let now = NOW.after(Duration::from_secs(48 * 3600));
    let mut budget = RateBudget::new(Duration::from_secs(1));
    (0..5).for_each(|_| budget.spend(now));
    assert_eq!(budget.preview_at(NOW), NOW);
    let mut throttle = PreviewThrottle::new(Duration::from_millis(800));
    throttle.shown(now);
    assert_eq!(throttle.next_at(NOW), Some(NOW));
    let mut waiting = item(State::Due, Preview::None, 0, false);
    waiting.not_before = now;
    assert_eq!(due_at(&waiting, NOW), NOW);
    for planned in [Duration::from_secs(5), MAX_WAIT] {
        waiting.not_before = NOW.after(planned);
        assert_eq!(due_at(&waiting, NOW), waiting.not_before);
    }
}

#[test]
fn item_found_in_flight_is_doubtful_unless_it_edits() {
    let shown = Preview::Shown("9".into());
    for (preview, sent, reached, doubtful) in [
        (Preview::None, 0, Reached::Maybe, true),
        (Preview::Requested, 0, Reached::Maybe, true),
        (shown.clone(), 0, Reached::Maybe, false),
        (shown, 1, Reached::Maybe, true),
        (Preview::None, 0, Reached::No, false),
    ] {
        let found = item(State::Sending, preview, sent, false);
        let again = FailureAction::Retry { at: NOW.after(Duration::from_secs(2)), doubtful };
        assert_eq!(
            after_crash(&found, reached, NOW, 0),
            again,
            "{:?} sent {sent} {reached:?}",
            found.preview
        );
    }
}

#[test]
fn gives_up_an_item_that_keeps_crashing_its_sender() {
    let mut found = item(State::Sending, Preview::None, 0, false);
    let mut tries = 1;
    while !matches!(after_crash(&found, Reached::Maybe, NOW, 0), FailureAction::DeadLetter { .. }) {
        found.attempts += 1;
        tries += 1;
    }
    assert_eq!(tries, MAX_CRASHES);
}

#[test]
fn slows_down_failed_previews_and_stops_after_three() {
    let mut throttle = PreviewThrottle::new(Duration::from_millis(800));
    throttle.shown(NOW);
    assert_eq!(throttle.next_at(NOW), Some(NOW.after(Duration::from_millis(800))));
    for _ in 0..2 {
        throttle.failed(NOW, Fault::Later { after: None });
    }
    assert_eq!(throttle.next_at(NOW), Some(NOW.after(Duration::from_millis(3200))));
    throttle.failed(NOW, Fault::Later { after: None });
    assert_eq!(throttle.next_at(NOW), None);
}

#[test]
fn keeps_an_item_for_exactly_a_day() {
    let day = Duration::from_secs(86_400);
    let send = LaneAction::Send { part: 0, marked: false };
    let found = item(State::Sending, Preview::None, 0, false);
    for (age, dead) in [
        (Duration::from_secs(60), false),
        (Duration::from_secs(86_399), false),
        (day, false),
        (Duration::from_secs(86_401), true),
    ] {
        let now = NOW.after(age);
        let later = Fault::Later { after: None };
        let failed = after_failure(&found, &send, later, Reached::No, now, 0);
        let died = after_crash(&found, Reached::No, now, 0);
        for outcome in [failed, died] {
            assert_eq!(matches!(outcome, FailureAction::DeadLetter { .. }), dead, "{age:?}");
        }
    }
}
