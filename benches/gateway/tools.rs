//! Terminal commands with large output.

use std::path::Path;
use std::time::{Duration, Instant};

use super::figure::Figure;
use super::fixture::GatewayFixture;
use super::process::{end, peak, rss};
use super::{Load, TIMEOUT};

pub(super) fn measure(program: &Path, _load: &Load) -> Vec<Figure> {
    let mut figures = flood(program);
    figures.extend(many(program));
    figures
}

/// One command that prints 2 GB.
fn flood(program: &Path) -> Vec<Figure> {
    let fixture = GatewayFixture::with_tools();
    let mut gateway = fixture.launch(program);
    fixture.send(1, "seq 100000");
    fixture.wait_for_answer();
    let before = peak(gateway.id());
    let started = Instant::now();
    fixture.send(1, "yes 0123456789abcdef | head -c 2000000000");
    fixture.wait_for_answer();
    let took = started.elapsed();
    let after = peak(gateway.id());
    end(&mut gateway);
    vec![
        Figure::memory("peak RSS before a command that prints 2 GB", before),
        Figure::memory("peak RSS after it", after),
        Figure::time("time it took", took),
    ]
}

/// 64 chats, each with a running command that has printed 1 MB.
fn many(program: &Path) -> Vec<Figure> {
    const CHATS: i64 = 64;
    let fixture = GatewayFixture::with_tools();
    let mut gateway = fixture.launch(program);
    let flags = fixture.home.path().join("flags");
    std::fs::create_dir(&flags).expect("a folder");
    let at = flags.display();
    for chat in 1..=CHATS {
        let command = format!("seq 150000; touch {at}/{chat}; while [ ! -e {at}/go ]; do sleep 0.1; done");
        fixture.send(chat, &command);
    }
    let here = || std::fs::read_dir(&flags).expect("a folder").count();
    let started = Instant::now();
    while here() < 64 {
        assert!(started.elapsed() < TIMEOUT, "only {} run", here());
        std::thread::sleep(Duration::from_millis(20));
    }
    let during = rss(gateway.id());
    std::fs::write(flags.join("go"), "").expect("a flag");
    for _ in 1..=CHATS {
        fixture.wait_for_answer();
    }
    let highest = peak(gateway.id());
    end(&mut gateway);
    vec![
        Figure::memory("RSS while 64 sessions run a command that has printed 1 MB", during),
        Figure::memory("peak RSS of that", highest),
    ]
}
