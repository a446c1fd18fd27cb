use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_core::Millis;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Process, Simulation};
use crate::{blocking, clock, random, spawn};

const START: Millis = Millis(1_790_000_000_000);

/// Tasks that race for a list, with all sources of nondeterminism.
fn race(seed: u64) -> (u64, Vec<u64>) {
    let simulation = Simulation::new(seed, START);
    let order = simulation.run(async {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (news, listener) = watch::channel(0);
        let mut tasks = Vec::new();
        for number in 0..20 {
            let order = order.clone();
            let mut listener = listener.clone();
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
fn equal_seeds_repeat_a_run_and_others_differ() {
    assert_eq!(race(7), race(7));
    assert_ne!(race(7).1, race(8).1);
}

#[test]
fn freezes_a_killed_process() {
    let simulation = Simulation::new(3, START);
    let simulation_handle = simulation.clone();
    let ticks = simulation.run(async move {
        let ticks = Arc::new(Mutex::new(0));
        let counted = ticks.clone();
        let (ended, dropped_signal) = tokio::sync::oneshot::channel::<()>();
        let _left_behind = simulation_handle.spawn_in(Process(1), async move {
            let _notifies_on_drop = ended;
            let inner = spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    *counted.lock().unwrap() += 1;
                }
            });
            let _never = inner.await;
        });
        sleep(Duration::from_millis(3_500)).await;
        simulation_handle.kill(Process(1));
        let dropped = tokio::time::timeout(Duration::from_secs(60), dropped_signal).await;
        assert!(dropped.is_err(), "a frozen task was dropped");
        *ticks.lock().unwrap()
    });
    assert_eq!(ticks, 3);
}

#[test]
fn task_that_kills_its_process_ends_at_once() {
    let simulation = Simulation::new(3, START);
    let simulation_handle = simulation.clone();
    simulation.run(async move {
        let killer = simulation_handle.clone();
        let task = simulation_handle.spawn_in(Process(1), async move {
            killer.kill(Process(1));
            killer.end_killed_task();
        });
        assert!(task.await.expect_err("it unwinds").is_panic());
        assert!(!simulation_handle.is_alive(Process(1)) && simulation_handle.is_alive(Process(2)));
    });
    assert_eq!(simulation.panics(), Vec::<String>::new());
}

#[test]
fn each_process_has_its_own_virtual_wall_clock() {
    let simulation = Simulation::new(1, START);
    let simulation_handle = simulation.clone();
    let began = std::time::Instant::now();
    simulation.run(async move {
        simulation_handle.set_clock(Process(1), -5_000);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock::now(), Millis(START.0 + 3_600_000));
        let theirs = simulation_handle.spawn_in(Process(1), async { clock::now() }).await.unwrap();
        assert_eq!(theirs, Millis(START.0 + 3_595_000));
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn records_panics_of_tasks() {
    let simulation = Simulation::new(1, START);
    simulation.run(async {
        let failed = spawn(async { panic!("a bug") }).await;
        assert!(failed.is_err());
    });
    assert_eq!(simulation.panics(), ["a bug"]);
}
