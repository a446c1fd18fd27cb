use alloc::string::{String, ToString};
use alloc::vec;

use super::*;
use crate::ids::OutboxId;
use crate::message::{ChatType, Delivery, Platform, Route, Source};
use crate::outbox::{Draft, Kind};

const NOW: Millis = Millis(1_000_000);

fn item(state: State, preview: Preview, sent: usize, doubtful: bool) -> Item {
    let platform = Platform::parse("telegram").unwrap();
    let route = Route::back_to(&Source::new(platform, ChatType::Dm, "7"), Delivery::Push);
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
        spent: 0,
        not_before: Millis(0),
        created_at: NOW,
        last_error: None,
    }
}

#[track_caller]
fn check(item: &Item, parts: usize, want: Act) {
    assert_eq!(
        act(item, parts, None, NOW),
        want,
        "{:?} {:?} sent {}",
        item.state,
        item.preview,
        item.sent.len()
    );
}

#[test]
fn parts_leave_in_order_and_only_those_not_acknowledged() {
    check(&item(State::Due, Preview::None, 0, false), 3, Act::Send { part: 0, marked: false });
    check(&item(State::Due, Preview::None, 2, false), 3, Act::Send { part: 2, marked: false });
    check(&item(State::Due, Preview::None, 3, false), 3, Act::Finish);
}

#[test]
fn a_part_whose_outcome_is_unknown_is_marked() {
    check(&item(State::Due, Preview::None, 1, true), 3, Act::Send { part: 1, marked: true });
}

#[test]
fn a_copy_that_the_platform_recognises_is_not_marked() {
    let memory = Duration::from_secs(120);
    for (tried, memory, marked) in [
        (Some(NOW.before(Duration::from_secs(119))), Some(memory), false),
        (Some(NOW.before(Duration::from_secs(120))), Some(memory), true),
        (Some(NOW.before(Duration::from_secs(1))), None, true),
        (None, Some(memory), true),
        // The clock was set back: nobody knows how long ago it was.
        (Some(NOW.after(Duration::from_secs(1))), Some(memory), true),
    ] {
        let item = Item { tried_at: tried, ..item(State::Due, Preview::None, 0, true) };
        assert_eq!(act(&item, 1, memory, NOW), Act::Send { part: 0, marked }, "{tried:?} {memory:?}");
    }
}

#[test]
fn a_key_that_tells_nothing_any_more_is_not_used_again_and_its_copy_is_marked() {
    let memory = Some(Duration::from_secs(120));
    let tried = Item { tried_at: Some(NOW), ..item(State::Due, Preview::None, 0, true) };
    let send = Act::Send { part: 0, marked: false };
    assert_eq!(act(&tried, 1, memory, NOW), send, "asking again may tell");
    assert!(!spends_key(&send, Reached::Maybe) && spends_key(&send, Reached::Untold));
    assert!(
        !spends_key(&Act::Replace { message: "9".into() }, Reached::Untold),
        "repeating that is harmless"
    );
    let mut keys = vec![key(&tried, 0, false)];
    for spent in 1..=3 {
        let item = Item { spent, ..tried.clone() };
        assert_eq!(act(&item, 1, memory, NOW), Act::Send { part: 0, marked: true });
        keys.push(key(&item, 0, true));
    }
    let unique: alloc::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(unique.len(), 4, "{keys:?}");
}

#[test]
fn a_shown_preview_is_replaced_never_marked() {
    let shown = Preview::Shown("9".into());
    check(&item(State::Due, shown.clone(), 0, false), 2, Act::Replace { message: "9".into() });
    check(&item(State::Due, shown.clone(), 1, false), 2, Act::Send { part: 1, marked: false });
    check(&item(State::Due, shown, 0, false), 0, Act::Withdraw { message: "9".into() });
}

#[test]
fn a_preview_of_unknown_fate_makes_the_first_part_doubtful_and_no_other() {
    check(&item(State::Due, Preview::Asked, 0, false), 2, Act::Send { part: 0, marked: true });
    check(&item(State::Due, Preview::Asked, 1, false), 2, Act::Send { part: 1, marked: false });
}

#[test]
fn a_streaming_item_waits_for_its_turn() {
    check(&item(State::Streaming, Preview::Shown("9".into()), 0, false), 1, Act::Hold);
}

#[track_caller]
fn after(act: &Act, fault: Fault, reached: Reached, want: Setback) {
    let due = item(State::Sending, Preview::None, 0, false);
    assert_eq!(setback(&due, act, fault, reached, NOW, 0), want, "{act:?} {fault:?} {reached:?}");
}

#[test]
fn an_unknown_outcome_is_doubtful_unless_repeating_is_harmless() {
    let second = Some(Duration::from_secs(1));
    let later = Fault::Later { after: second };
    let at = Millis(NOW.0 + 1000);
    let send = Act::Send { part: 0, marked: false };
    after(&send, later, Reached::Maybe, Setback::Again { at, doubtful: true });
    after(&send, later, Reached::No, Setback::Again { at, doubtful: false });
    let replace = Act::Replace { message: "9".into() };
    after(&replace, later, Reached::Maybe, Setback::Again { at, doubtful: false });
}

#[test]
fn a_refused_message_is_buried_and_an_old_one_too() {
    let send = Act::Send { part: 0, marked: false };
    after(&send, Fault::Refused, Reached::No, Setback::Bury { doubtful: false });
    let old = item(State::Sending, Preview::None, 0, false);
    let much_later = NOW.after(PATIENCE).after(Duration::from_secs(1));
    let later = Fault::Later { after: None };
    assert_eq!(setback(&old, &send, later, Reached::No, much_later, 0), Setback::Bury { doubtful: false });
}

#[test]
fn previews_wait_for_the_budget() {
    let mut budget = Budget::new(Duration::from_secs(1));
    (0..5).for_each(|_| budget.spend(NOW));
    assert_eq!(budget.preview_at(NOW), NOW.after(Duration::from_secs(3)));
}

#[test]
fn no_wait_is_longer_than_an_hour() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let send = Act::Send { part: 0, marked: false };
    let flood = Fault::Later { after: Some(year) };
    after(&send, flood, Reached::No, Setback::Again { at: NOW.after(LONGEST_WAIT), doubtful: false });
}

#[test]
fn a_clock_set_back_makes_everything_due() {
    let now = NOW.after(Duration::from_secs(48 * 3600));
    let mut budget = Budget::new(Duration::from_secs(1));
    (0..5).for_each(|_| budget.spend(now));
    assert_eq!(budget.preview_at(NOW), NOW);
    let mut rhythm = Rhythm::new(Duration::from_millis(800));
    rhythm.shown(now);
    assert_eq!(rhythm.next_at(NOW), Some(NOW));
    let mut waiting = item(State::Due, Preview::None, 0, false);
    waiting.not_before = now;
    assert_eq!(due_at(&waiting, NOW), NOW);
    for planned in [Duration::from_secs(5), LONGEST_WAIT] {
        waiting.not_before = NOW.after(planned);
        assert_eq!(due_at(&waiting, NOW), waiting.not_before);
    }
}

#[test]
fn an_item_found_in_flight_is_doubtful_unless_it_replaces_a_preview() {
    let shown = Preview::Shown("9".into());
    for (preview, sent, reached, doubtful) in [
        (Preview::None, 0, Reached::Maybe, true),
        (Preview::Asked, 0, Reached::Maybe, true),
        (shown.clone(), 0, Reached::Maybe, false),
        (shown, 1, Reached::Maybe, true),
        (Preview::None, 0, Reached::No, false),
    ] {
        let found = item(State::Sending, preview, sent, false);
        let again = Setback::Again { at: NOW.after(Duration::from_secs(2)), doubtful };
        assert_eq!(crashed(&found, reached, NOW, 0), again, "{:?} sent {sent} {reached:?}", found.preview);
    }
}

#[test]
fn an_item_that_keeps_crashing_its_sender_is_given_up() {
    let mut found = item(State::Sending, Preview::None, 0, false);
    let mut tries = 1;
    while !matches!(crashed(&found, Reached::Maybe, NOW, 0), Setback::Bury { .. }) {
        found.attempts += 1;
        tries += 1;
    }
    assert_eq!(tries, CRASHES);
}

#[test]
fn previews_slow_down_when_refused_and_stop_after_three() {
    let mut rhythm = Rhythm::new(Duration::from_millis(800));
    rhythm.shown(NOW);
    assert_eq!(rhythm.next_at(NOW), Some(NOW.after(Duration::from_millis(800))));
    for _ in 0..2 {
        rhythm.failed(NOW, Fault::Later { after: None });
    }
    assert_eq!(rhythm.next_at(NOW), Some(NOW.after(Duration::from_millis(3200))));
    rhythm.failed(NOW, Fault::Later { after: None });
    assert_eq!(rhythm.next_at(NOW), None);
}

#[test]
fn item_is_kept_for_exactly_a_day() {
    let day = Duration::from_secs(86_400);
    let send = Act::Send { part: 0, marked: false };
    let found = item(State::Sending, Preview::None, 0, false);
    for (age, buried) in [
        (Duration::from_secs(60), false),
        (Duration::from_secs(86_399), false),
        (day, false),
        (Duration::from_secs(86_401), true),
    ] {
        let (now, later) = (NOW.after(age), Fault::Later { after: None });
        let failed = setback(&found, &send, later, Reached::No, now, 0);
        let died = crashed(&found, Reached::No, now, 0);
        for outcome in [failed, died] {
            assert_eq!(matches!(outcome, Setback::Bury { .. }), buried, "{age:?}");
        }
    }
}
