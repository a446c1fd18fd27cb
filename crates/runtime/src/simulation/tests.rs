use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_core::Millis;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Process, Simulation};
use crate::{blocking, clock, random, spawn};

const START: Millis = Millis(1_790_000_000_000);

/// Tasks that race for a list, over everything that could make two runs differ.
fn race(seed: u64) -> (u64, Vec<u64>) {
    let simulation = Simulation::new(seed, START);
    let order = simulation.run(async {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (news, listener) = watch::channel(0);
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (order, mut listener) = (order.clone(), listener.clone());
            tasks.push(spawn(async move {
                let _closed = listener.changed().await;
                crate::select! {
                    () = sleep(Duration::from_millis(5)) => {}
                    () = sleep(Duration::from_millis(5)) => order.lock().unwrap().push(100),
                    () = std::future::pending() => {}
                }
                let found = blocking(move || number * 2).await.unwrap();
                order.lock().unwrap().push(found);
            }));
        }
        sleep(Duration::from_secs(1)).await;
        news.send_replace(1);
        for task in tasks {
            task.await.unwrap();
        }
        let mut order = order.lock().unwrap().clone();
        order.push(u64::from_le_bytes(random::bytes()));
        order.push(clock::now().0);
        order
    });
    (simulation.trace(), order)
}

#[test]
fn two_runs_of_one_seed_are_identical_and_seeds_differ() {
    assert_eq!(race(7), race(7));
    assert_ne!(race(7).1, race(8).1);
}

#[test]
fn a_killed_process_does_nothing_any_more() {
    let simulation = Simulation::new(3, START);
    let world = simulation.clone();
    let beats = simulation.run(async move {
        let beats = Arc::new(Mutex::new(0));
        let counted = beats.clone();
        let (ended, told) = tokio::sync::oneshot::channel::<()>();
        let _left_behind = world.spawn_in(Process(1), async move {
            let _tells_when_dropped = ended;
            let inner = spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    *counted.lock().unwrap() += 1;
                }
            });
            let _never = inner.await;
        });
        sleep(Duration::from_millis(3_500)).await;
        world.kill(Process(1));
        let dropped = tokio::time::timeout(Duration::from_secs(60), told).await;
        assert!(dropped.is_err(), "a frozen task was dropped");
        *beats.lock().unwrap()
    });
    assert_eq!(beats, 3);
}

#[test]
fn a_task_that_kills_its_process_does_not_reach_its_next_line() {
    let simulation = Simulation::new(3, START);
    let world = simulation.clone();
    simulation.run(async move {
        let killer = world.clone();
        let task = world.spawn_in(Process(1), async move {
            killer.kill(Process(1));
            killer.end_killed_task();
        });
        assert!(task.await.expect_err("it unwinds").is_panic());
        assert!(!world.is_alive(Process(1)) && world.is_alive(Process(2)));
    });
    assert_eq!(simulation.panics(), Vec::<String>::new());
}

#[test]
fn each_process_has_a_wall_clock_and_time_is_virtual() {
    let simulation = Simulation::new(1, START);
    let world = simulation.clone();
    let began = std::time::Instant::now();
    simulation.run(async move {
        world.set_clock(Process(1), -5_000);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock::now(), Millis(START.0 + 3_600_000));
        let theirs = world.spawn_in(Process(1), async { clock::now() }).await.unwrap();
        assert_eq!(theirs, Millis(START.0 + 3_595_000));
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_panic_of_a_task_is_remembered() {
    let simulation = Simulation::new(1, START);
    simulation.run(async {
        let failed = spawn(async { panic!("a bug") }).await;
        assert!(failed.is_err());
    });
    assert_eq!(simulation.panics(), ["a bug"]);
}
