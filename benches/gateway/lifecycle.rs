//! Start, stop and drain.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::figure::{Figure, median};
use super::fixture::GatewayFixture;
use super::process::{end, rss};
use super::{Load, TIMEOUT};

/// Cold start to the first poll, memory after one turn, and the stop.
pub(super) fn starts(program: &Path, load: &Load) -> Vec<Figure> {
    let mut polls = vec![];
    let mut stops = vec![];
    let mut memory = vec![];
    for _ in 0..load.starts {
        let fixture = GatewayFixture::new();
        let started = Instant::now();
        let mut gateway = fixture.launch(program);
        let first = fixture
            .telegram
            .wait_until(TIMEOUT, |world| world.calls_of("getUpdates").next().map(|call| call.at));
        polls.push(first.expect("polls").duration_since(started));
        fixture.exchange(1);
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

/// From the drain marker to the published state, and back.
pub(super) fn drains(program: &Path, load: &Load) -> Vec<Figure> {
    let fixture = GatewayFixture::new();
    let mut gateway = fixture.launch(program);
    let marker = fixture.home.path().join(".drain_request.json");
    let beside = fixture.home.path().join("beside");
    fixture.await_state("running");
    let mut begun = vec![];
    let mut ended = vec![];
    for _ in 0..load.drains {
        std::fs::write(&beside, r#"{"action":"drain"}"#).expect("a marker");
        let asked = Instant::now();
        std::fs::rename(&beside, &marker).expect("put in place");
        fixture.await_state("draining");
        begun.push(asked.elapsed());
        let asked = Instant::now();
        std::fs::remove_file(&marker).expect("a marker");
        fixture.await_state("running");
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
