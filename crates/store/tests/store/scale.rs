//! Work that is independent of the database size, measured in virtual-machine steps.

use std::sync::atomic::Ordering;
use std::time::Duration;

use petasos_core::session::{CrashRecovery, FreshnessWindow, ResetMode, ResetPolicies, ResetPolicy};
use petasos_core::turn::TurnLimits;
use petasos_core::{Millis, SessionKey};
use petasos_store::{BootPolicy, FinalizeFrom, HoldScope, HomeState, Store, SuspectHold};

use crate::fill::fill;
use crate::fixture::{Home, NOW, finish, key, later, start, telegram, turn};

const FEW: usize = 1_000;
const MANY: usize = 8_000;

/// A home with `chats` sessions, used until a minute ago.
fn filled(chats: usize) -> Home {
    let mut home = Home::new();
    fill(&mut home.store, 0, chats, 4, Millis(NOW.0 - 60_000)).unwrap();
    home
}

/// A small and a large home.
fn homes() -> [Home; 2] {
    [filled(FEW), filled(MANY)]
}

/// The large home may take a tenth more steps, because its trees are deeper.
#[track_caller]
fn check(homes: &mut [Home; 2], name: &str, work: impl Fn(&mut Store)) {
    let [few, many] = homes.each_mut().map(|home| {
        let steps = home.store.count_steps();
        work(&mut home.store);
        steps.load(Ordering::Relaxed)
    });
    assert!(few > 0, "{name}: nothing was counted");
    assert!(many <= few + few / 10, "{name}: {few} steps with {FEW} conversations, {many} with {MANY}");
}

fn start_up(store: &mut Store, clean: bool, crash_recovery: CrashRecovery) {
    let window = FreshnessWindow::default();
    let hold = SuspectHold { scope: HoldScope::LastTry, pause: Duration::ZERO, stable: Duration::ZERO };
    let terms = BootPolicy { crash_recovery, window, limits: TurnLimits::default(), hold };
    let found = HomeState { clean, ..HomeState::default() };
    store.sessions_imported().unwrap();
    store.write(|tx| tx.take_over(&found, &terms, |_, _| Ok(true), NOW)).unwrap();
    store.open_delegations().unwrap();
    store.all_open_questions().unwrap();
}

#[test]
fn start_cost_is_independent_of_stored_sessions() {
    let mut homes = homes();
    check(&mut homes, "after a clean stop", |store| start_up(store, true, CrashRecovery::Journal));
    check(&mut homes, "after a crash", |store| start_up(store, false, CrashRecovery::Journal));
}

#[test]
fn start_after_a_crash_reads_only_recent_sessions() {
    let mut homes = [FEW, MANY].map(|chats| {
        let mut home = Home::new();
        // Old sessions, and a few recent ones.
        fill(&mut home.store, 0, chats, 1, Millis(NOW.0 - 86_400_000)).unwrap();
        fill(&mut home.store, chats, 10, 1, NOW).unwrap();
        home
    });
    check(&mut homes, "after a crash", |store| start_up(store, false, CrashRecovery::Suspend));
    let recent = homes.map(|home| home.store.entry(&key("3")).unwrap().unwrap().suspended);
    assert_eq!(recent, [false, false]);
}

#[test]
fn turn_cost_is_independent_of_stored_sessions() {
    check(&mut homes(), "a turn", |store| {
        let chat = "17";
        let id =
            store.write(|tx| tx.accept(&crate::fixture::inbound(chat, "1"), &key(chat), NOW)).unwrap().id();
        let mut turn = turn(chat, &[id]);
        turn.session = store.bound(&key(chat)).unwrap().unwrap();
        store.write(|tx| tx.apply(&start(&turn), NOW)).unwrap();
        store.history(&turn.session, 100).unwrap();
        store.write(|tx| tx.apply(&finish(chat, &turn, "fine"), NOW)).unwrap();
        store.entries_of_chat(telegram(), chat).unwrap();
    });
}

#[test]
fn periodic_work_is_independent_of_stored_sessions() {
    let mut homes = homes();
    check(&mut homes, "pruning", |store| {
        assert_eq!(store.write(|tx| tx.prune(NOW)).unwrap().rows, 0);
    });
    check(&mut homes, "dropping old entries", |store| {
        assert_eq!(
            store.write(|tx| tx.prune_entries(NOW.before(Duration::from_secs(90 * 86_400)))).unwrap(),
            0
        );
    });
    let default = ResetPolicy { mode: ResetMode::Idle, idle_minutes: 60_000, ..ResetPolicy::default() };
    let policies = ResetPolicies { default, ..ResetPolicies::default() };
    check(&mut homes, "ending expired conversations", move |store| {
        let page = store.write(|tx| tx.finalize_expired(&policies, NOW, &FinalizeFrom::default())).unwrap();
        assert!(page.next.is_some());
    });
    check(&mut homes, "what changed in the directory", |store| {
        assert_eq!(store.recent_origins(telegram(), None, 500).unwrap().len(), 500);
        store.recent_origins(telegram(), Some(NOW), 500).unwrap();
    });
    check(&mut homes, "what changed in the routing table", |store| {
        assert!(store.routing_exceeds(500).unwrap());
        store.routing_latest().unwrap();
    });
    check(&mut homes, "a page of the routing table", |store| {
        assert_eq!(store.entries_after(&SessionKey(String::new()), 100).unwrap().entries.len(), 100);
        assert_eq!(store.keys_after(&SessionKey(String::new()), 100).unwrap().len(), 100);
    });
    check(&mut homes, "status", |store| {
        store.backlog().unwrap();
        store.outbox_counts().unwrap();
        store.cached_files().unwrap();
        store.keys_with_work().unwrap();
    });
}

#[test]
fn finds_expired_sessions_page_by_page() {
    let mut home = filled(1_200);
    let default = ResetPolicy { mode: ResetMode::Idle, idle_minutes: 1, ..ResetPolicy::default() };
    let policies = ResetPolicies { default, ..ResetPolicies::default() };
    let mut from = Some(FinalizeFrom::default());
    let mut ended = 0;
    let mut pages = 0;
    while let Some(behind) = from.take() {
        let page = home.write(|tx| tx.finalize_expired(&policies, later(3600), &behind));
        (ended, pages, from) = (ended + page.ended, pages + 1, page.next);
    }
    assert_eq!((ended, pages), (1_200, 3));
}

#[test]
fn pages_of_the_routing_table_hold_every_entry_once() {
    let home = filled(1_000);
    let mut after = Some(SessionKey(String::new()));
    let mut keys = Vec::new();
    while let Some(behind) = after.take() {
        let page = home.store.entries_after(&behind, 300).unwrap();
        keys.extend(page.entries.into_iter().map(|entry| entry.session_key));
        after = page.next;
    }
    assert_eq!(keys.len(), 1_000);
    assert!(keys.is_sorted());
    keys.dedup();
    assert_eq!(keys.len(), 1_000);
}
