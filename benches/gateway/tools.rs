//! Commands that print much.

use std::path::Path;
use std::time::{Duration, Instant};

use super::figure::Figure;
use super::process::{end, peak, rss};
use super::rig::Rig;
use super::{Load, PATIENCE};

pub(super) fn measure(program: &Path, _load: &Load) -> Vec<Figure> {
    let mut figures = flood(program);
    figures.extend(many(program));
    figures
}

/// One command that prints two gigabytes.
fn flood(program: &Path) -> Vec<Figure> {
    let rig = Rig::with_tools();
    let mut gateway = rig.launch(program);
    rig.say(1, "seq 100000");
    rig.answer();
    let before = peak(gateway.id());
    let started = Instant::now();
    rig.say(1, "yes 0123456789abcdef | head -c 2000000000");
    rig.answer();
    let took = started.elapsed();
    let after = peak(gateway.id());
    end(&mut gateway);
    vec![
        Figure::memory("peak RSS before a command that prints 2 GB", before),
        Figure::memory("peak RSS after it", after),
        Figure::time("time it took", took),
    ]
}

/// 64 chats, each with a command that has printed a megabyte and still runs.
fn many(program: &Path) -> Vec<Figure> {
    const CHATS: i64 = 64;
    let rig = Rig::with_tools();
    let mut gateway = rig.launch(program);
    let flags = rig.home.path().join("flags");
    std::fs::create_dir(&flags).expect("a folder");
    let at = flags.display();
    for chat in 1..=CHATS {
        let command = format!("seq 150000; touch {at}/{chat}; while [ ! -e {at}/go ]; do sleep 0.1; done");
        rig.say(chat, &command);
    }
    let (here, started) = (|| std::fs::read_dir(&flags).expect("a folder").count(), Instant::now());
    while here() < 64 {
        assert!(started.elapsed() < PATIENCE, "only {} run", here());
        std::thread::sleep(Duration::from_millis(20));
    }
    let during = rss(gateway.id());
    std::fs::write(flags.join("go"), "").expect("a flag");
    for _ in 1..=CHATS {
        rig.answer();
    }
    let highest = peak(gateway.id());
    end(&mut gateway);
    vec![
        Figure::memory("RSS while 64 sessions run a command that has printed 1 MB", during),
        Figure::memory("peak RSS of that", highest),
    ]
}
