//! What tools cost the gateway in memory: next to nothing, however much they print and however many run.
//!
//! `cargo bench --bench gateway tools` prints the figures of a release build.

use crate::support::{Bench, SOON, said, wait_for_file};
use petasos_fakes::model::{Answer, Request};
use serde_json::json;

const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n\
                      display:\n  busy_ack_enabled: false\n";
const CHATS: i64 = 64;

/// Runs what it is told to, and says how many bytes came back.
fn obey(request: &Request) -> Answer {
    match request.messages().last().filter(|row| row["role"] == "tool") {
        Some(row) => Answer::text(format!("{} bytes", row["content"].as_str().map_or(0, str::len))),
        None => Answer::tool("terminal", json!({"command": said(&request.last_user), "timeout": 600})),
    }
}

fn bench() -> Bench {
    let mut bench = Bench::with(CONFIG);
    bench.model.respond(obey);
    bench.start();
    bench
}

/// The most memory that the gateway ever had, in KiB.
fn peak(bench: &Bench) -> u64 {
    let pid = bench.gateway.as_ref().expect("running").pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn a_command_that_prints_two_gigabytes_leaves_the_memory_flat() {
    let bench = bench();
    bench.telegram.push_text(7, 7, "seq 100000");
    bench.wait_messages(7, 1);
    let before = peak(&bench);
    bench.telegram.push_text(7, 7, "yes 0123456789abcdef | head -c 2000000000; echo; echo LAST");
    let answered = bench.telegram.wait_until(SOON * 6, |world| (world.texts(7).len() == 2).then_some(()));
    assert!(answered.is_some(), "never over: {:?}", bench.telegram.texts(7));
    let shown =
        bench.model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    let shown = shown["content"].as_str().expect("a result");
    assert!(shown.contains("out of 2000000006 total") && shown.contains("LAST") && shown.len() < 60_000);
    let grown = peak(&bench) - before;
    println!("two gigabytes: the peak grew by {grown} KiB, from {before} KiB");
    assert!(grown < 24 << 10, "grown by {grown} KiB, from {before} KiB");
}

#[test]
fn sixty_four_sessions_that_run_tools_at_once_fit_into_a_hundred_megabytes() {
    let bench = bench();
    let flags = bench.home.path().join("flags");
    std::fs::create_dir(&flags).expect("a folder");
    // Each prints a megabyte, says that it has, and stays until all have.
    let at = flags.display();
    for chat in 1..=CHATS {
        let command = format!("seq 150000; touch {at}/{chat}; {}", wait_for_file(&flags.join("go")));
        bench.telegram.push_text(chat, chat, command);
    }
    let until = std::time::Instant::now() + SOON * 3;
    let here = || std::fs::read_dir(&flags).expect("a folder").count();
    while here() < CHATS as usize {
        assert!(std::time::Instant::now() < until, "only {} run", here());
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    std::fs::write(flags.join("go"), "").expect("a flag");
    for chat in 1..=CHATS {
        let said = &bench.wait_messages(chat, 1)[0];
        let bytes: usize = said.strip_suffix(" bytes").and_then(|it| it.parse().ok()).expect("a size");
        assert!((40_000..60_000).contains(&bytes), "chat {chat}: {said}");
    }
    let peak = peak(&bench);
    println!("64 sessions at once: {peak} KiB at most");
    assert!(peak < 100 << 10, "{peak} KiB");
}
