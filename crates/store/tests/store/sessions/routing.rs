//! Use times of the routing table, and clocks set back.

use std::time::Duration;

use petasos_core::Millis;
use petasos_core::session::{CrashRecovery, Entry};
use petasos_store::local_time;

use crate::fixture::{Home, NOW, key, later, own_process, session};

fn used(home: &mut Home, chat: &str, at: Millis) {
    home.write(|tx| tx.put_entry(&Entry::new(key(chat), session(chat), None, local_time(at))));
}

#[test]
fn returns_the_last_use_of_any_entry() {
    let mut home = Home::new();
    assert_eq!(home.store.routing_latest().unwrap(), None);
    for (chat, at) in [("7", later(5)), ("8", NOW)] {
        used(&mut home, chat, at);
        assert_eq!(home.store.routing_latest().unwrap(), i64::try_from(later(5).0).ok(), "chat {chat}");
    }
}

#[test]
fn suspends_sessions_used_before_a_two_hour_clock_change() {
    let done = own_process("sessions::routing::suspends_in_a_zone_with_double_summer_time")
        .env("TZ", "AAA0BBB-2,M3.5.0/1,M10.5.0/3")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
#[ignore = "run by the test above as another process, because the time zone is one of the process"]
fn suspends_in_a_zone_with_double_summer_time() {
    // 25 October 2026, 00:59 UTC: one minute before 03:00 becomes 01:00.
    let used_at = Millis(1_792_889_940_000);
    let two_hours_later = Millis(used_at.0 + 7_200_000);
    if local_time(used_at) != local_time(two_hours_later) {
        return; // Another time zone: run without the test above.
    }
    let mut home = Home::new();
    used(&mut home, "7", used_at);
    let window = Duration::from_secs(120);
    let suspend = |home: &mut Home| {
        home.write(|tx| tx.suspend_recently_active(CrashRecovery::Suspend, window, two_hours_later))
    };
    assert_eq!(suspend(&mut home), 1, "the local times are equal");
}
