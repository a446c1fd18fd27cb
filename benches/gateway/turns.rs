//! Turns over Telegram, in one chat and in many.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use super::Load;
use super::figure::{Figure, per_turn, percentiles};
use super::fixture::GatewayFixture;
use super::process::{cpu, end, rss};

const WARM_UP: usize = 50;

pub(super) fn latency(program: &Path, load: &Load) -> Vec<Figure> {
    one_session(program, load.turns)
}

pub(super) fn long(program: &Path, load: &Load) -> Vec<Figure> {
    one_session(program, load.long_turns)
}

/// One chat with sequential messages.
fn one_session(program: &Path, turns: usize) -> Vec<Figure> {
    let fixture = GatewayFixture::new();
    let mut gateway = fixture.launch(program);
    for _ in 0..WARM_UP {
        fixture.exchange(1);
    }
    let before = cpu(gateway.id());
    let mut taken: Vec<_> = (0..turns).map(|_| fixture.exchange(1)).collect();
    let spent = cpu(gateway.id()) - before;
    end(&mut gateway);
    let which = format!("turns {} to {} of one session", WARM_UP + 1, WARM_UP + turns);
    let mut figures = Vec::from(percentiles(&format!("latency, {which}"), &mut taken));
    figures.push(per_turn(format!("CPU per turn, {which}"), spent, turns));
    figures
}

/// 64 chats, each of which sends the next message after an answer.
pub(super) fn throughput(program: &Path, load: &Load) -> Vec<Figure> {
    const CHATS: i64 = 64;
    let fixture = GatewayFixture::new();
    let mut gateway = fixture.launch(program);
    for chat in 1..=CHATS {
        fixture.send(chat, "warm up");
    }
    for _ in 1..=CHATS {
        fixture.wait_for_answer();
    }
    let before = cpu(gateway.id());
    let started = Instant::now();
    let mut asked: HashMap<i64, Instant> = HashMap::new();
    for chat in 1..=CHATS {
        asked.insert(chat, Instant::now());
        fixture.send(chat, "hello");
    }
    let turns = load.crowd_turns;
    let mut taken = Vec::with_capacity(turns);
    for _ in 0..turns {
        let chat = fixture.wait_for_answer();
        taken.extend(asked.insert(chat, Instant::now()).map(|at| at.elapsed()));
        fixture.send(chat, "hello");
    }
    let wall = started.elapsed();
    let spent = cpu(gateway.id()) - before;
    let mut figures = vec![Figure::rate("turns per second, 64 sessions", turns, wall)];
    figures.extend(percentiles("latency, 64 sessions", &mut taken));
    figures.push(per_turn("CPU per turn, 64 sessions", spent, turns));
    figures.push(Figure::memory(format!("RSS after {turns} turns"), rss(gateway.id())));
    end(&mut gateway);
    figures
}

/// One message from each of 1,000 chats.
pub(super) fn sessions(program: &Path, _load: &Load) -> Vec<Figure> {
    let fixture = GatewayFixture::new();
    let mut gateway = fixture.launch(program);
    for chat in 1..=1000 {
        fixture.send(chat, "hello");
    }
    for _ in 1..=1000 {
        fixture.wait_for_answer();
    }
    let memory = rss(gateway.id());
    end(&mut gateway);
    vec![Figure::memory("RSS after 1,000 sessions", memory)]
}
