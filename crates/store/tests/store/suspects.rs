//! Crashes with several executing turns: who is blamed, held and given up.

use std::time::Duration;

use petasos_core::journal::Outcome;
use petasos_core::outbox::State;
use petasos_core::session::{CrashRecovery, Entry, Window};
use petasos_core::turn::{Limits, Turn};
use petasos_core::{SessionKey, TurnId};
use petasos_store::{Booted, Candidate, Found, Hold, Scope, Terms, local_time};

use crate::fixture::{Home, NOW, finish, key, session, start, turn};

const STABLE: Duration = Duration::from_secs(10);

/// A home in which these chats have an executing turn.
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

/// A start after a crash, or after a clean stop.
fn boot(home: &mut Home, scope: Scope, clean: bool) -> Booted {
    let hold = Hold { scope, pause: STABLE, stable: STABLE };
    let (crash_recovery, window) = (CrashRecovery::Journal, Window::default());
    let terms = Terms { crash_recovery, window, limits: Limits::default(), hold };
    let found = Found { clean, ..Found::default() };
    home.write(|tx| tx.take_over(&found, &terms, |_, _| Ok(true), NOW))
}

fn after_crash(home: &mut Home) -> Booted {
    boot(home, Scope::LastTry, false)
}

fn resume(home: &mut Home, turn: TurnId) {
    home.write(|tx| tx.turn_taken_up(turn));
}

/// A start after a crash, which resumes everything that is not held.
fn crash_and_resume(home: &mut Home, turns: &[Turn]) -> Booted {
    let booted = after_crash(home);
    for turn in turns.iter().filter(|turn| resumed(&booted).contains(&turn.key)) {
        resume(home, turn.id);
    }
    booted
}

fn resumed(booted: &Booted) -> Vec<SessionKey> {
    let turns = booted.candidates.values().flatten().filter_map(|candidate| match candidate {
        Candidate::Turn(key) => Some(key.clone()),
        Candidate::Marked(_) | Candidate::Waiting(_) => None,
    });
    turns.collect()
}

fn held(booted: &Booted) -> Vec<(SessionKey, u32)> {
    booted.held.iter().map(|suspect| (suspect.key.clone(), suspect.crashes)).collect()
}

fn given_up(booted: &Booted) -> Vec<TurnId> {
    booted.report.given_up.iter().map(|(turn, _)| *turn).collect()
}

/// Chats that were told that their message is kept.
fn notified(home: &Home) -> Vec<String> {
    let items = home.store.items_in(State::Due, 100).unwrap();
    let kept = items.into_iter().filter(|item| item.draft.text.contains("Your message is kept"));
    let mut chats: Vec<_> = kept.map(|item| item.draft.route.chat_id).collect();
    chats.sort();
    chats
}

#[test]
fn turns_that_share_every_crash_are_held_at_the_last_try_and_never_given_up() {
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
fn only_the_turn_on_trial_is_given_up_and_its_neighbours_are_resumed_alone() {
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
    assert_eq!(home.store.settled(Outcome::Dead, 10).unwrap().len(), 1);
    assert_eq!(home.store.turn(turns[1].id).unwrap().unwrap().ended, Some((Outcome::Answered, NOW)));
}

#[test]
fn turn_that_executes_alone_at_three_crashes_is_given_up() {
    let (mut home, turns) = executing(&["7"]);
    assert_eq!(resumed(&crash_and_resume(&mut home, &turns)), [key("7")]);
    assert_eq!(held(&after_crash(&mut home)), [(key("7"), 2)]);
    resume(&mut home, turns[0].id);
    assert_eq!(given_up(&after_crash(&mut home)), [turns[0].id]);
}

#[test]
fn suspect_below_the_last_try_is_resumed_at_once_beside_a_held_one() {
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
    assert_eq!(held(&boot(&mut home, Scope::LastTry, true)).len(), 2);
    assert_eq!(notified(&home), ["7", "8"], "each is told once");
}

#[test]
fn tripped_breaker_holds_suspects_below_the_last_try() {
    let (mut home, _turns) = executing(&["7", "8"]);
    let booted = boot(&mut home, Scope::All, false);
    assert_eq!((held(&booted).len(), resumed(&booted)), (2, vec![]));
}
