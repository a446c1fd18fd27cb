//! Start, stop and drain.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::figure::{Figure, median};
use super::process::{end, rss};
use super::rig::Rig;
use super::{Load, PATIENCE};

/// Cold start to the first poll, memory after one turn, and the stop.
pub(super) fn starts(program: &Path, load: &Load) -> Vec<Figure> {
    let (mut polls, mut stops, mut memory) = (vec![], vec![], vec![]);
    for _ in 0..load.starts {
        let rig = Rig::new();
        let started = Instant::now();
        let mut gateway = rig.launch(program);
        let first = rig
            .telegram
            .wait_until(PATIENCE, |world| world.calls_of("getUpdates").next().map(|call| call.at));
        polls.push(first.expect("polls").duration_since(started));
        rig.ask(1);
        memory.push(rss(gateway.id()));
        let asked = Instant::now();
        Command::new("kill").arg(gateway.id().to_string()).status().expect("kill");
        gateway.wait().expect("ends");
        stops.push(asked.elapsed());
    }
    memory.sort_unstable();
    vec![
        Figure::time("cold start to first getUpdates, median", median(&mut polls)),
        Figure::memory("RSS after one turn, median", memory[memory.len() / 2]),
        Figure::time("SIGTERM to exit when idle, median", median(&mut stops)),
    ]
}

/// From the marker to the published state, and back.
pub(super) fn drains(program: &Path, load: &Load) -> Vec<Figure> {
    let rig = Rig::new();
    let mut gateway = rig.launch(program);
    let (marker, beside) = (rig.home.path().join(".drain_request.json"), rig.home.path().join("beside"));
    rig.await_state("running");
    let (mut begun, mut ended) = (vec![], vec![]);
    for _ in 0..load.drains {
        std::fs::write(&beside, r#"{"action":"drain"}"#).expect("a marker");
        let asked = Instant::now();
        std::fs::rename(&beside, &marker).expect("put in place");
        rig.await_state("draining");
        begun.push(asked.elapsed());
        let asked = Instant::now();
        std::fs::remove_file(&marker).expect("a marker");
        rig.await_state("running");
        ended.push(asked.elapsed());
    }
    end(&mut gateway);
    let middle = median(&mut begun);
    vec![
        Figure::time("drain marker to state `draining` on disk, median", middle),
        Figure::time("the same, slowest", begun[begun.len() - 1]),
        Figure::time("marker removed to state `running` on disk, median", median(&mut ended)),
    ]
}
