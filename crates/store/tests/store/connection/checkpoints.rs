//! Log size limits, with and without a checkpointer.

use std::fs;

use petasos_store::{LogProbe, LogState, Reader, Store};

use crate::fixture::{Home, NOW, inbound, key};

const PAGE: u64 = 4096 + 24;

fn log_bytes(home: &Home) -> u64 {
    fs::metadata(format!("{}-wal", home.path().display())).unwrap().len()
}

/// One commit of about forty pages.
fn fill(home: &mut Home, number: usize) {
    let mut message = inbound("7", &number.to_string());
    message.text = "x".repeat(150_000);
    home.write(|tx| tx.accept(&message, &key("7"), NOW));
}

#[test]
fn store_without_a_checkpointer_bounds_its_log() {
    let mut home = Home::new();
    for number in 0..200 {
        fill(&mut home, number);
    }
    assert!(log_bytes(&home) < 1200 * PAGE, "{}", log_bytes(&home));
}

#[test]
fn commits_leave_checkpoints_to_the_checkpointer() {
    let mut home = Home::new();
    let checkpointer = home.store.checkpointer().unwrap();
    for number in 0..40 {
        fill(&mut home, number);
    }
    let log = home.store.log_state().unwrap();
    assert!(log.is_due() && log.copied == 0, "{log:?}");
    let done = checkpointer.run().unwrap();
    assert_eq!(done.waiting(), 0, "{done:?}");
    home.accept("7", "small");
    let log = home.store.log_state().unwrap();
    assert!(log.pages < 100, "the log started over: {log:?}");
}

#[test]
fn writer_bounds_a_log_whose_checkpointer_never_catches_up() {
    let mut home = Home::new();
    let checkpointer = home.store.checkpointer().unwrap();
    let mut largest = 0;
    for number in 0..400 {
        fill(&mut home, number);
        let log = home.store.log_state().unwrap();
        if log.is_due() {
            // Keeps the checkpoint one commit behind.
            checkpointer.run().unwrap();
            fill(&mut home, 1000 + number);
        }
        let log = home.store.bound_log(home.store.log_state().unwrap()).unwrap();
        assert!(!log.is_held_back(), "{log:?}");
        largest = largest.max(log.pages);
    }
    assert!(largest < 6_000, "{largest} pages");
}

#[test]
fn state_of_a_small_log_is_not_read_after_every_commit() {
    let mut home = Home::new();
    let _checkpointer = home.store.checkpointer().unwrap();
    let mut probe = LogProbe::default();
    home.accept("7", "small");
    assert_eq!(probe.read(&home.store, 15), Ok(None));
    let read = probe.read(&home.store, 1).unwrap();
    assert_eq!(read, Some(home.store.log_state().unwrap()), "the sixteenth job");
    assert_eq!(probe.read(&home.store, 1), Ok(None), "counted anew");
}

#[test]
fn state_of_a_log_near_its_bound_is_read_after_every_commit() {
    let mut home = Home::new();
    let _checkpointer = home.store.checkpointer().unwrap();
    let mut probe = LogProbe::default();
    (0..110).for_each(|number| fill(&mut home, number));
    assert!(home.store.log_state().unwrap().pages > 4096);
    assert!(probe.read(&home.store, 16).unwrap().is_some());
    assert!(probe.read(&home.store, 1).unwrap().is_some());
}

#[test]
fn reports_a_reader_that_holds_the_log_back() {
    let mut home = Home::new();
    let checkpointer = home.store.checkpointer().unwrap();
    let reader = Reader::open(home.path()).unwrap();
    let held = reader.snapshot(|reader| {
        reader.queued(&key("7"))?;
        let mut number = 0;
        while home.store.log_state()?.pages < 16_500 {
            let mut message = inbound("7", &number.to_string());
            message.text = "x".repeat(8 << 20);
            home.write(|tx| tx.accept(&message, &key("7"), NOW));
            number += 1;
        }
        checkpointer.run()?;
        home.store.bound_log(home.store.log_state()?)
    });
    assert!(held.unwrap().is_held_back());
    let free = home.store.bound_log(home.store.log_state().unwrap()).unwrap();
    assert_eq!(free.waiting(), 0);
    home.accept("7", "small");
    assert!(!home.store.log_state().unwrap().is_held_back());
    assert!(log_bytes(&home) <= 32 << 20, "the file is cut back: {}", log_bytes(&home));
}

#[test]
fn log_is_truncated_at_shutdown_beside_a_checkpointer() {
    let mut home = Home::new();
    let checkpointer = home.store.checkpointer().unwrap();
    fill(&mut home, 0);
    drop(checkpointer);
    home.store.checkpoint_in_commits().unwrap();
    home.store.checkpoint_truncate().unwrap();
    assert_eq!(log_bytes(&home), 0);
    assert_eq!(home.store.log_state(), Ok(LogState::default()));
    let path = home.path();
    let Home { folder: _folder, store } = home;
    store.close().unwrap();
    assert_eq!(Store::open(&path).unwrap().queued(&key("7")).unwrap().len(), 1);
}
