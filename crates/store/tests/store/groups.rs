//! Groups: what is in a commit and what is not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use petasos_store::{Error, Result, Tx};

use crate::fixture::{Home, NOW, inbound, key};

fn put(tx: &Tx<'_>, dedup: &str) -> Result<()> {
    tx.accept(&inbound("7", dedup), &key("7"), NOW).map(drop)
}

fn fail(tx: &Tx<'_>, dedup: &str) -> Result<()> {
    put(tx, dedup)?;
    Err(Error::Conflict("on purpose"))
}

#[track_caller]
fn kept(home: &Home, want: &[&str]) {
    let found: Vec<String> =
        home.store.queued(&key("7")).unwrap().into_iter().map(|row| row.inbound.dedup).collect();
    assert_eq!(found, want);
}

#[test]
fn a_group_that_is_dropped_leaves_nothing() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| put(tx, "a")).unwrap();
    group.job(|tx| put(tx, "b")).unwrap();
    drop(group);
    kept(&home, &[]);
    kept(&home.reopen(), &[]);
}

#[test]
fn a_failing_job_undoes_only_itself_wherever_it_stands() {
    for (place, want) in [(0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b"])] {
        let mut home = Home::new();
        let group = home.store.group().unwrap();
        for (at, dedup) in ["a", "b", "c"].into_iter().enumerate() {
            let job = if at == place { fail } else { put };
            assert_eq!(group.job(|tx| job(tx, dedup)).is_err(), at == place);
        }
        group.commit().unwrap();
        kept(&home, &want);
    }
}

#[test]
fn a_group_of_failures_commits_nothing_and_the_next_one_works() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    for dedup in ["a", "b"] {
        group.job(|tx| fail(tx, dedup)).unwrap_err();
    }
    group.commit().unwrap();
    kept(&home, &[]);
    home.write(|tx| put(tx, "c"));
    kept(&home, &["c"]);
}

#[test]
fn a_job_that_panics_breaks_its_group() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| put(tx, "a")).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        group.job(|tx| {
            put(tx, "b")?;
            std::panic::resume_unwind(Box::new("on purpose"));
            #[expect(unreachable_code)]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(group.job(|tx| put(tx, "c")), Err(Error::Broken));
    assert_eq!(group.commit(), Err(Error::Broken));
    kept(&home, &[]);
    home.write(|tx| put(tx, "d"));
    kept(&home, &["d"]);
}

#[test]
fn a_job_sees_what_earlier_jobs_of_its_group_wrote() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| put(tx, "a")).unwrap();
    assert_eq!(group.job(|tx| tx.queued(&key("7"))).unwrap().len(), 1);
    group.commit().unwrap();
}

#[test]
fn what_was_committed_survives_a_power_cut_and_what_was_not_does_not() {
    let mut home = Home::new();
    home.accept("7", "a");
    let group = home.store.group().unwrap();
    group.job(|tx| put(tx, "b")).unwrap();
    let folder = home.folder.path();
    let other = tempfile::tempdir().unwrap();
    for name in ["petasos.db", "petasos.db-wal", ".petasos-db"] {
        std::fs::copy(folder.join(name), other.path().join(name)).unwrap();
    }
    let copy = petasos_store::Store::open(other.path().join("petasos.db")).unwrap();
    let kept: Vec<String> =
        copy.queued(&key("7")).unwrap().into_iter().map(|row| row.inbound.dedup).collect();
    assert_eq!(kept, ["a"]);
}
