//! Crashes with several executing turns: which are blamed, held and given up.

use std::time::Duration;

use petasos_core::journal::MessageOutcome;
use petasos_core::outbox::State;
use petasos_core::session::{CrashRecovery, Entry, FreshnessWindow};
use petasos_core::turn::{Turn, TurnLimits};
use petasos_core::{SessionKey, TurnId};
use petasos_store::{BootPolicy, BootResult, HoldScope, HomeState, ResumeCandidate, SuspectHold, local_time};

use crate::fixture::{Home, NOW, finish, key, session, start, turn};

const STABLE: Duration = Duration::from_secs(10);

fn executing(chats: &[&str]) -> (Home, Vec<Turn>) {
    let mut home = Home::new();
    let turns = chats.iter().map(|chat| begin(&mut home, chat)).collect();
    (home, turns)
}

fn begin(home: &mut Home, chat: &str) -> Turn {
    let inbox = home.accept(chat, chat);
    let turn = turn(chat, &[inbox]);
    home.apply(&start(&turn)).unwrap();
    home.write(|tx| tx.put_entry(&Entry::new(key(chat), session("s1"), None, local_time(NOW))));
    turn
}

/// Boots after a crash or a clean stop.
fn boot(home: &mut Home, scope: HoldScope, clean: bool) -> BootResult {
    let hold = SuspectHold { scope, pause: STABLE, stable: STABLE };
    let crash_recovery = CrashRecovery::Journal;
    let window = FreshnessWindow::default();
    let terms = BootPolicy { crash_recovery, window, limits: TurnLimits::default(), hold };
    let found = HomeState { clean, ..HomeState::default() };
    home.write(|tx| tx.take_over(&found, &terms, |_, _| Ok(true), NOW))
}

fn after_crash(home: &mut Home) -> BootResult {
    boot(home, HoldScope::LastTry, false)
}

fn resume(home: &mut Home, turn: TurnId) {
    home.write(|tx| tx.turn_resumed(turn));
}

/// Boots after a crash and resumes the turns that are not held.
fn crash_and_resume(home: &mut Home, turns: &[Turn]) -> BootResult {
    let booted = after_crash(home);
    for turn in turns.iter().filter(|turn| resumed(&booted).contains(&turn.key)) {
        resume(home, turn.id);
    }
    booted
}

fn resumed(booted: &BootResult) -> Vec<SessionKey> {
    let turns = booted.candidates.values().flatten().filter_map(|candidate| match candidate {
        ResumeCandidate::Turn(key) => Some(key.clone()),
        ResumeCandidate::Marked(_) | ResumeCandidate::Waiting(_) => None,
    });
    turns.collect()
}

fn held(booted: &BootResult) -> Vec<(SessionKey, u32)> {
    booted.held.iter().map(|suspect| (suspect.key.clone(), suspect.crashes)).collect()
}

fn given_up(booted: &BootResult) -> Vec<TurnId> {
    booted.report.given_up.iter().map(|(turn, _)| *turn).collect()
}

/// Chats notified that their message is kept.
fn notified(home: &Home) -> Vec<String> {
    let items = home.store.items_in(State::Due, 100).unwrap();
    let kept = items.into_iter().filter(|item| item.draft.text.contains("Your message is kept"));
    let mut chats: Vec<_> = kept.map(|item| item.draft.route.chat_id).collect();
    chats.sort();
    chats
}

#[test]
fn turns_sharing_every_crash_are_held_but_never_given_up() {
    let (mut home, turns) = executing(&["7", "8"]);
    let first = crash_and_resume(&mut home, &turns);
    assert_eq!((resumed(&first), held(&first)), (vec![key("7"), key("8")], vec![]));
    assert_eq!(notified(&home), Vec::<String>::new());
    for _crash in 2..=5 {
        let booted = after_crash(&mut home);
        assert_eq!((resumed(&booted), given_up(&booted)), (vec![], vec![]));
        assert_eq!(held(&booted), [(key("7"), 2), (key("8"), 2)]);
        assert_eq!(booted.report.suspects, 2);
        for turn in &turns {
            resume(&mut home, turn.id);
            assert!(home.write(|tx| tx.clear_suspect(turn.id)), "it has run for the stable interval");
        }
    }
    assert_eq!(home.store.failure_counts().unwrap().count(&key("7")), 2, "the session is not suspended");
}

#[test]
fn only_the_turn_on_trial_is_given_up() {
    let (mut home, turns) = executing(&["7", "8"]);
    crash_and_resume(&mut home, &turns);
    assert_eq!(held(&after_crash(&mut home)).len(), 2);
    let fresh = begin(&mut home, "9");
    resume(&mut home, turns[0].id);
    let booted = after_crash(&mut home);
    assert_eq!(given_up(&booted), [turns[0].id]);
    assert_eq!((held(&booted), resumed(&booted)), (vec![(key("8"), 2)], vec![key("9")]));
    assert_eq!(home.store.turn(fresh.id).unwrap().unwrap().turn.crashes, 0);
    resume(&mut home, turns[1].id);
    home.apply(&finish("8", &turns[1], "an answer")).unwrap();
    assert_eq!(home.store.settled(MessageOutcome::Dead, 10).unwrap().len(), 1);
    assert_eq!(home.store.turn(turns[1].id).unwrap().unwrap().ended, Some((MessageOutcome::Answered, NOW)));
}

#[test]
fn turn_executing_alone_at_three_crashes_is_given_up() {
    let (mut home, turns) = executing(&["7"]);
    assert_eq!(resumed(&crash_and_resume(&mut home, &turns)), [key("7")]);
    assert_eq!(held(&after_crash(&mut home)), [(key("7"), 2)]);
    resume(&mut home, turns[0].id);
    assert_eq!(given_up(&after_crash(&mut home)), [turns[0].id]);
}

#[test]
fn suspect_below_the_last_try_is_resumed_at_once() {
    let (mut home, turns) = executing(&["7"]);
    crash_and_resume(&mut home, &turns);
    begin(&mut home, "8");
    let booted = after_crash(&mut home);
    assert_eq!((held(&booted), resumed(&booted)), (vec![(key("7"), 2)], vec![key("8")]));
    assert_eq!(notified(&home), ["7"]);
}

#[test]
fn suspect_at_the_last_try_stays_held_after_a_clean_stop() {
    let (mut home, turns) = executing(&["7", "8"]);
    crash_and_resume(&mut home, &turns);
    assert_eq!(held(&after_crash(&mut home)).len(), 2);
    assert_eq!(held(&boot(&mut home, HoldScope::LastTry, true)).len(), 2);
    assert_eq!(notified(&home), ["7", "8"], "each is notified once");
}

#[test]
fn tripped_breaker_holds_suspects_below_the_last_try() {
    let (mut home, _turns) = executing(&["7", "8"]);
    let booted = boot(&mut home, HoldScope::All, false);
    assert_eq!((held(&booted).len(), resumed(&booted)), (2, vec![]));
}
