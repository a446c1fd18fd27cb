//! Outbox order, parts, previews and crash recovery.

use petasos_core::journal::Write;
use petasos_core::outbox::{Item, Preview, State};
use petasos_core::{OutboxId, TurnId};
use petasos_store::{EnqueueOutcome, Error, PreviewAction, RecoveredSends};

use crate::fixture::{Home, NOW, answer_draft, draft, finish, lane, later, start, turn};

const LANE: &str = "telegram:7";

fn sending(item: OutboxId) -> Write {
    Write::Sending { item }
}

fn part(item: OutboxId, message: &str) -> Write {
    Write::PartSent { item, message: message.into(), thread: None }
}

fn delivered(item: OutboxId, message: &str) -> Write {
    Write::Delivered { item, message: Some(message.into()), at: NOW }
}

fn postpone(item: OutboxId, seconds: u64, doubtful: bool) -> Write {
    Write::Postpone { item, not_before: later(seconds), doubtful, error: "later".into() }
}

/// A turn with a streaming outbox item.
fn speaking(home: &mut Home) -> (TurnId, OutboxId) {
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    let item = home.write(|tx| tx.open_preview(&answer_draft("7", turn.id, 0, "so f"), NOW));
    (turn.id, item)
}

fn shown(turn: TurnId, message: &str) -> Write {
    Write::PreviewShown { turn, step: 0, message: message.into() }
}

#[test]
fn a_lane_sends_in_order_and_its_first_item_holds_back_the_rest() {
    let mut home = Home::new();
    let first = home.enqueue("7", "one").id;
    let second = home.enqueue("7", "two").id;
    home.enqueue("8", "elsewhere");
    assert_eq!(home.store.due_lanes(NOW).unwrap(), [lane(LANE), lane("telegram:8")]);
    home.apply(&[sending(first), postpone(first, 30, false)]).unwrap();
    assert_eq!(home.store.due_lanes(NOW).unwrap(), [lane("telegram:8")]);
    assert_eq!(home.store.due_lanes(later(30)).unwrap(), [lane(LANE), lane("telegram:8")]);
    let order: Vec<OutboxId> =
        home.store.due_of_lane(&lane(LANE), 10).unwrap().iter().map(|item| item.id).collect();
    assert_eq!(order, [first, second]);
    assert_eq!(home.item(first).attempts, 1);
    assert_eq!(home.store.heads().unwrap().len(), 2);
}

#[test]
fn later_parts_follow_into_a_newly_opened_thread() {
    let mut home = Home::new();
    let item = home.enqueue("7", "long").id;
    let opened = Write::PartSent { item, message: "m".into(), thread: Some("91".into()) };
    home.apply(&[sending(item), opened]).unwrap();
    assert_eq!(home.item(item).draft.route.thread_id.as_deref(), Some("91"));
    home.apply(&[sending(item), part(item, "m")]).unwrap();
    let route = home.item(item).draft.route;
    assert_eq!((route.lane(), route.thread_id.as_deref()), (lane(LANE), Some("91")));
}

#[test]
fn parts_are_counted_and_the_last_completes_the_item() {
    let mut home = Home::new();
    let id = home.enqueue("7", "long").id;
    home.apply(&[sending(id), part(id, "m1")]).unwrap();
    let item = home.item(id);
    assert_eq!((item.state, item.sent.len(), item.doubtful), (State::Due, 1, false));
    home.apply(&[sending(id), delivered(id, "m2")]).unwrap();
    let item = home.item(id);
    assert_eq!((item.state, item.sent), (State::Done, vec!["m1".to_owned(), "m2".to_owned()]));
    assert_eq!(home.store.heads().unwrap(), []);
    assert!(matches!(home.apply(&[sending(id)]), Err(Error::Conflict(_))));
}

#[test]
fn receipts_are_stored_unchanged() {
    let mut home = Home::new();
    let id = home.enqueue("7", "text").id;
    home.apply(&[sending(id), part(id, r#"$ev"],[:é"#), sending(id), delivered(id, "12345678901234567890")])
        .unwrap();
    assert_eq!(home.item(id).sent, [r#"$ev"],[:é"#, "12345678901234567890"]);
}

#[test]
fn an_answer_completes_the_preview_of_its_step_and_no_other() {
    let mut home = Home::new();
    let (turn, item) = speaking(&mut home);
    assert_eq!(home.store.due_lanes(NOW).unwrap(), []);
    assert_eq!(home.item(item).preview, Preview::Requested);
    home.apply(&[shown(turn, "m9"), Write::Enqueue(answer_draft("7", turn, 0, "so far so good"))]).unwrap();
    home.apply(&[Write::Enqueue(answer_draft("7", turn, 1, "another step"))]).unwrap();
    let found = home.item(item);
    assert_eq!((found.state, found.preview), (State::Due, Preview::Shown("m9".into())));
    assert_eq!(found.draft.text, "so far so good");
    assert_eq!(home.store.items_of_turn(turn).unwrap().len(), 2);
    let twice = home.apply(&[Write::Enqueue(answer_draft("7", turn, 0, "twice"))]);
    assert!(matches!(twice, Err(Error::Conflict(_))), "one item for each step");
}

#[test]
fn step_without_an_answer_withdraws_its_preview() {
    let mut home = Home::new();
    let (turn, item) = speaking(&mut home);
    let close = |text: &str| Write::ClosePreview { turn, step: 0, text: text.into() };
    home.apply(&[shown(turn, "m9"), close("")]).unwrap();
    let found = home.item(item);
    assert_eq!((found.state, found.draft.text.as_str()), (State::Due, ""));
    home.apply(&[close("too late")]).unwrap();
    assert_eq!(home.item(item).draft.text, "");
    home.apply(&[Write::ClosePreview { turn, step: 5, text: "nothing streams here".into() }]).unwrap();
    assert_eq!(home.store.items_of_turn(turn).unwrap().len(), 1);
}

#[test]
fn answer_without_its_preview_is_sent_as_new() {
    let mut home = Home::new();
    let (turn, item) = speaking(&mut home);
    home.apply(&[shown(turn, "m9"), Write::Enqueue(answer_draft("7", turn, 0, "done")), sending(item)])
        .unwrap();
    home.apply(&[Write::DropPreview { turn, step: 0 }]).unwrap();
    let found = home.item(item);
    assert_eq!((found.state, found.preview, found.doubtful), (State::Due, Preview::None, false));
}

#[test]
fn resumed_turn_reuses_its_outbox_item() {
    let mut home = Home::new();
    let (turn, item) = speaking(&mut home);
    let mut home = home.crash();
    home.write(|tx| tx.recover_sending());
    let again = home.write(|tx| tx.open_preview(&answer_draft("7", turn, 0, "so"), NOW));
    assert_eq!(again, item);
    assert!(home.item(item).doubtful, "the first preview may still be visible");
}

type Prepare = fn(&mut Home) -> OutboxId;

/// Every state that a crash can leave, and the recovered (state, doubtful).
const CRASHES: &[(&str, Prepare, (State, bool))] = &[
    ("due", |home| home.enqueue("7", "x").id, (State::Due, false)),
    (
        "part 0 in flight as a new message",
        |home| {
            let id = home.enqueue("7", "x").id;
            home.apply(&[sending(id)]).unwrap();
            id
        },
        (State::Due, true),
    ),
    (
        "between two parts",
        |home| {
            let id = home.enqueue("7", "x").id;
            home.apply(&[sending(id), part(id, "m1")]).unwrap();
            id
        },
        (State::Due, false),
    ),
    (
        "part 1 in flight",
        |home| {
            let id = home.enqueue("7", "x").id;
            home.apply(&[sending(id), part(id, "m1"), sending(id)]).unwrap();
            id
        },
        (State::Due, true),
    ),
    (
        "part 0 in flight as an edit of a shown preview",
        |home| {
            let (turn, item) = speaking(home);
            home.apply(&[shown(turn, "m9"), Write::Enqueue(answer_draft("7", turn, 0, "x")), sending(item)])
                .unwrap();
            item
        },
        (State::Due, false),
    ),
    (
        "part 1 in flight after an edit of a shown preview",
        |home| {
            let (turn, item) = speaking(home);
            let owe = Write::Enqueue(answer_draft("7", turn, 0, "x"));
            home.apply(&[shown(turn, "m9"), owe, sending(item), part(item, "m9"), sending(item)]).unwrap();
            item
        },
        (State::Due, true),
    ),
    ("a preview asked for, its id unknown", |home| speaking(home).1, (State::Streaming, true)),
    (
        "a preview shown",
        |home| {
            let (turn, item) = speaking(home);
            home.apply(&[shown(turn, "m9")]).unwrap();
            item
        },
        (State::Streaming, false),
    ),
    (
        "done",
        |home| {
            let id = home.enqueue("7", "x").id;
            home.apply(&[sending(id), delivered(id, "m1")]).unwrap();
            id
        },
        (State::Done, false),
    ),
    (
        "postponed with a doubt",
        |home| {
            let id = home.enqueue("7", "x").id;
            home.apply(&[sending(id), postpone(id, 5, true)]).unwrap();
            id
        },
        (State::Due, true),
    ),
];

#[test]
fn recovery_marks_exactly_the_possibly_visible_items() {
    for (name, prepare, want) in CRASHES {
        let mut home = Home::new();
        let id = prepare(&mut home);
        let mut home = home.crash();
        home.write(|tx| tx.recover_sending());
        let Item { state, doubtful, .. } = home.item(id);
        assert_eq!((state, doubtful), *want, "{name}");
        assert_eq!(home.write(|tx| tx.recover_sending()), RecoveredSends::default(), "{name}: twice is once");
    }
}

#[test]
fn preview_lost_in_a_crash_makes_the_answer_doubtful() {
    let mut home = Home::new();
    let (turn, item) = speaking(&mut home);
    let mut home = home.crash();
    home.write(|tx| tx.recover_sending());
    home.apply(&[Write::Enqueue(answer_draft("7", turn, 0, "the answer"))]).unwrap();
    let found = home.item(item);
    assert_eq!((found.state, found.doubtful), (State::Due, true));
}

#[test]
fn an_answer_killed_before_its_first_send_is_delivered_unmarked() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    home.apply(&finish("7", &turn, "answer")).unwrap();
    let mut home = home.crash();
    assert_eq!(home.write(|tx| tx.recover_sending()), RecoveredSends::default());
    let due = home.store.due_of_lane(&lane(LANE), 10).unwrap();
    assert_eq!((due.len(), due[0].doubtful), (1, false));
    assert!(home.store.open_turns().unwrap().is_empty());
}

#[test]
fn dead_item_is_listed_until_retried_or_dropped() {
    let mut home = Home::new();
    let a = home.enqueue("7", "one").id;
    let b = home.enqueue("7", "two").id;
    let bury = |item, doubtful| Write::DeadLetter { item, doubtful, error: "chat not found".into(), at: NOW };
    home.apply(&[bury(a, false), sending(b), bury(b, true)]).unwrap();
    let dead = home.store.items_in(State::Dead, 10).unwrap();
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0].last_error.as_deref(), Some("chat not found"));
    assert_eq!(home.store.outbox_counts().unwrap().dead, 2);
    assert!(home.write(|tx| tx.retry_item(b, later(5))));
    let again = home.item(b);
    assert_eq!(
        (again.state, again.doubtful),
        (State::Due, true),
        "its outcome was unknown when it was given up"
    );
    assert_eq!((again.created_at, again.attempts), (later(5), 0), "its age and attempts are reset");
    assert!(home.write(|tx| tx.drop_item(a)));
    assert!(!home.write(|tx| tx.drop_item(a)));
    home.apply(&[sending(b)]).unwrap();
    assert!(!home.write(|tx| tx.drop_item(b)), "it is being sent");
}

#[test]
fn dropped_item_is_not_sent() {
    let mut home = Home::new();
    let id = home.enqueue("7", "one").id;
    home.write(|tx| tx.drop_item(id));
    assert!(matches!(home.apply(&[sending(id)]), Err(Error::Conflict(_))));
    home.apply(&[delivered(id, "m1")]).expect("a late receipt of a dropped item is ignored");
}

#[test]
fn reconnect_clears_delays_of_its_own_platform_only() {
    let mut home = Home::new();
    let id = home.enqueue("7", "one").id;
    home.apply(&[postpone(id, 300, false)]).unwrap();
    assert_eq!(home.write(|tx| tx.clear_retry_delays("tele")), 0);
    assert_eq!(home.write(|tx| tx.clear_retry_delays("telegram")), 1);
    assert_eq!(home.store.due_lanes(NOW).unwrap(), [lane(LANE)]);
}

#[test]
fn buttons_and_route_round_trip() {
    let mut home = Home::new();
    let mut wanted = draft("7", "choose");
    wanted.route.thread_id = Some("3".into());
    wanted.buttons.push(petasos_core::outbox::Button { label: "Yes".into(), data: "y".into() });
    home.apply(&[Write::Enqueue(wanted.clone())]).unwrap();
    assert_eq!(home.store.due_of_lane(&lane(LANE), 1).unwrap()[0].draft, wanted);
}

#[test]
fn doubt_is_cleared_by_the_receipt_of_its_part() {
    let mut home = Home::new();
    let id = home.enqueue("7", "long").id;
    home.apply(&[sending(id), postpone(id, 5, true), sending(id)]).unwrap();
    assert!(home.item(id).doubtful, "the part in flight is the marked copy");
    home.apply(&[part(id, "m1")]).unwrap();
    let found = home.item(id);
    assert_eq!((found.doubtful, found.attempts), (false, 0));
}

#[test]
fn a_preview_is_sent_once_then_edited_and_never_after_its_step() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    let stage = |home: &mut Home, step| {
        home.write(|tx| tx.stage_preview(&answer_draft("7", turn.id, step, "so f"), NOW))
    };
    assert_eq!(stage(&mut home, 0), PreviewAction::Send);
    assert_eq!(stage(&mut home, 0), PreviewAction::Skip, "its outcome is unknown");
    home.apply(&[shown(turn.id, "m9")]).unwrap();
    assert_eq!(stage(&mut home, 0), PreviewAction::Edit("m9".into()));
    home.apply(&[Write::DropPreview { turn: turn.id, step: 0 }]).unwrap();
    assert_eq!(stage(&mut home, 0), PreviewAction::Send);
    assert_eq!(stage(&mut home, 1), PreviewAction::Skip, "the turn is not there yet");
    home.apply(&finish("7", &turn, "answer")).unwrap();
    assert_eq!(stage(&mut home, 0), PreviewAction::Skip);
    assert_eq!(home.store.items_of_turn(turn.id).unwrap().len(), 1);
}

#[test]
fn first_try_of_a_part_is_kept_until_it_is_sent() {
    let mut home = Home::new();
    let id = home.enqueue("7", "long").id;
    assert_eq!(home.item(id).tried_at, None);
    home.write(|tx| tx.apply(&[sending(id)], NOW));
    home.write(|tx| tx.apply(&[postpone(id, 1, true)], NOW));
    home.write(|tx| tx.apply(&[sending(id)], later(5)));
    assert_eq!(home.item(id).tried_at, Some(NOW));
    home.write(|tx| tx.recover_sending());
    assert_eq!(home.item(id).tried_at, Some(NOW), "a crash does not forget it");
    home.write(|tx| tx.apply(&[part(id, "m1")], later(6)));
    assert_eq!(home.item(id).tried_at, None);
    home.write(|tx| tx.apply(&[sending(id)], later(7)));
    assert_eq!(home.item(id).tried_at, Some(later(7)));
}

#[test]
fn repeated_enqueue_is_idempotent_and_retries_dead_items() {
    let mut home = Home::new();
    let enqueue = |home: &mut Home, dedup: &str| {
        home.write(|tx| tx.enqueue_once("webhook", dedup, &[], &draft("7", "disk full"), NOW))
    };
    let first = enqueue(&mut home, "ci:1");
    assert!(matches!(first, EnqueueOutcome::New(_)));
    let mut home = home.crash();
    let id = first.id().unwrap();
    assert_eq!(enqueue(&mut home, "ci:1"), EnqueueOutcome::Existing(id));
    assert_ne!(enqueue(&mut home, "ci:2").id(), Some(id), "another identity");
    home.apply(&[Write::DeadLetter { item: id, doubtful: true, error: "barred".into(), at: NOW }]).unwrap();
    assert_eq!(enqueue(&mut home, "ci:1"), EnqueueOutcome::Existing(id));
    let again = home.item(id);
    assert_eq!((again.state, again.doubtful), (State::Due, true), "a copy stays marked");
    home.apply(&[sending(id), delivered(id, "m1")]).unwrap();
    assert_eq!(enqueue(&mut home, "ci:1"), EnqueueOutcome::Existing(id));
    assert_eq!(home.item(id).state, State::Done);
    let day = 24 * 3600;
    home.write(|tx| tx.prune(later(8 * day)));
    assert_eq!(home.store.item(id).unwrap(), None);
    assert_eq!(enqueue(&mut home, "ci:1"), EnqueueOutcome::Existing(id), "its identity is remembered longer");
    home.write(|tx| tx.prune(later(40 * day)));
    assert!(matches!(enqueue(&mut home, "ci:1"), EnqueueOutcome::New(_)));
    assert!(matches!(enqueue(&mut home, "ci:2"), EnqueueOutcome::Existing(_)), "still due, so not forgotten");
}

#[test]
fn reconnect_keeps_rate_limits_imposed_by_the_platform() {
    use petasos_core::rate_limit::{Penalty, PenaltyScope};
    let mut home = Home::new();
    let platform = petasos_core::Platform::parse("telegram").expect("known");
    let chat = PenaltyScope::Chat("7".into());
    let penalty = Penalty::new(platform, chat, std::time::Duration::from_secs(60), "slow down", NOW);
    let id = home.enqueue("7", "one").id;
    home.apply(&[postpone(id, 60, false), Write::RateLimited(penalty.clone())]).unwrap();
    home.write(|tx| tx.clear_retry_delays("telegram"));
    assert_eq!(home.store.penalties().unwrap(), std::slice::from_ref(&penalty));
    let longer = Penalty { until: later(90), ..penalty };
    home.apply(&[Write::RateLimited(longer.clone())]).unwrap();
    assert_eq!(home.store.penalties().unwrap(), std::slice::from_ref(&longer), "one row for each scope");
    assert_eq!(home.write(|tx| tx.penalties_in_force(later(5))), std::slice::from_ref(&longer));
    let back = petasos_core::Millis(NOW.0 - 1_000_000);
    let [again] = &home.write(|tx| tx.penalties_in_force(back))[..] else { panic!("one") };
    assert_eq!(again.until, back.after(std::time::Duration::from_secs(90)), "its own length from now");
    assert_eq!(home.write(|tx| tx.expire_penalties(NOW)), 1);
    assert!(home.store.penalties().unwrap().is_empty());
}
