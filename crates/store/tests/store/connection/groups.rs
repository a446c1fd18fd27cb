//! Groups: which writes a commit contains.

use std::panic::{AssertUnwindSafe, catch_unwind};

use petasos_store::{Error, Result, Tx};

use crate::fixture::{Home, NOW, inbound, key};

fn accept(tx: &Tx<'_>, dedup: &str) -> Result<()> {
    tx.accept(&inbound("7", dedup), &key("7"), NOW).map(drop)
}

fn fail(tx: &Tx<'_>, dedup: &str) -> Result<()> {
    accept(tx, dedup)?;
    Err(Error::Conflict("on purpose"))
}

#[track_caller]
fn kept(home: &Home, want: &[&str]) {
    let found: Vec<String> =
        home.store.queued(&key("7")).unwrap().into_iter().map(|row| row.inbound.dedup).collect();
    assert_eq!(found, want);
}

#[test]
fn dropped_group_is_rolled_back() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| accept(tx, "a")).unwrap();
    group.job(|tx| accept(tx, "b")).unwrap();
    drop(group);
    kept(&home, &[]);
    kept(&home.reopen(), &[]);
}

#[test]
fn failing_job_rolls_back_only_itself() {
    for (place, want) in [(0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b"])] {
        let mut home = Home::new();
        let group = home.store.group().unwrap();
        for (at, dedup) in ["a", "b", "c"].into_iter().enumerate() {
            let job = if at == place { fail } else { accept };
            assert_eq!(group.job(|tx| job(tx, dedup)).is_err(), at == place);
        }
        group.commit().unwrap();
        kept(&home, &want);
    }
}

#[test]
fn group_of_failures_commits_nothing() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    for dedup in ["a", "b"] {
        group.job(|tx| fail(tx, dedup)).unwrap_err();
    }
    group.commit().unwrap();
    kept(&home, &[]);
    home.write(|tx| accept(tx, "c"));
    kept(&home, &["c"]);
}

#[test]
fn panicking_job_breaks_its_group() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| accept(tx, "a")).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        group.job(|tx| {
            accept(tx, "b")?;
            std::panic::resume_unwind(Box::new("on purpose"));
            #[expect(unreachable_code)]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(group.job(|tx| accept(tx, "c")), Err(Error::Broken));
    assert_eq!(group.commit(), Err(Error::Broken));
    kept(&home, &[]);
    home.write(|tx| accept(tx, "d"));
    kept(&home, &["d"]);
}

#[test]
fn job_sees_writes_of_earlier_jobs_in_its_group() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group.job(|tx| accept(tx, "a")).unwrap();
    assert_eq!(group.job(|tx| tx.queued(&key("7"))).unwrap().len(), 1);
    group.commit().unwrap();
}

#[test]
fn only_committed_writes_survive_a_power_failure() {
    let mut home = Home::new();
    home.accept("7", "a");
    let group = home.store.group().unwrap();
    group.job(|tx| accept(tx, "b")).unwrap();
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
