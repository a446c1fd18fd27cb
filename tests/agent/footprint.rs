//! Memory that tools cost the gateway, with large outputs and many concurrent commands.
//!
//! `cargo bench --bench gateway tools` prints the figures of a release build.

use crate::support::{ProgramFixture, SOON, user_text, wait_for_file};
use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::json;

const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  sandbox: 'off'\n  login_shell: false\n\
                      display:\n  busy_ack_enabled: false\n";
const CHATS: i64 = 64;

/// Runs the user's text as a command, and answers with the size of its output.
fn scripted_answer(request: &ChatRequest) -> Answer {
    match request.messages().last().filter(|row| row["role"] == "tool") {
        Some(row) => Answer::text(format!("{} bytes", row["content"].as_str().map_or(0, str::len))),
        None => Answer::tool("terminal", json!({"command": user_text(&request.last_user), "timeout": 600})),
    }
}

fn fixture() -> ProgramFixture {
    let mut fixture = ProgramFixture::with_config(CONFIG);
    fixture.model.respond(scripted_answer);
    fixture.start();
    fixture
}

/// Peak resident memory of the gateway in KiB.
fn peak(fixture: &ProgramFixture) -> u64 {
    let pid = fixture.gateway.as_ref().expect("running").pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn two_gigabytes_of_output_keep_memory_flat() {
    let fixture = fixture();
    fixture.telegram.push_text(7, 7, "seq 100000");
    fixture.wait_messages(7, 1);
    let before = peak(&fixture);
    fixture.telegram.push_text(7, 7, "yes 0123456789abcdef | head -c 2000000000; echo; echo LAST");
    let answered = fixture.telegram.wait_until(SOON * 6, |state| (state.texts(7).len() == 2).then_some(()));
    assert!(answered.is_some(), "never over: {:?}", fixture.telegram.texts(7));
    let shown =
        fixture.model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    let shown = shown["content"].as_str().expect("a result");
    assert!(shown.contains("out of 2000000006 total") && shown.contains("LAST") && shown.len() < 60_000);
    let grown = peak(&fixture) - before;
    println!("two gigabytes: the peak grew by {grown} KiB, from {before} KiB");
    assert!(grown < 24 << 10, "grown by {grown} KiB, from {before} KiB");
}

#[test]
fn sixty_four_concurrent_tools_fit_in_100_mb() {
    let fixture = fixture();
    let flags = fixture.home.path().join("flags");
    std::fs::create_dir(&flags).expect("a folder");
    // Each prints a megabyte, creates its flag, and waits for all others.
    let at = flags.display();
    for chat in 1..=CHATS {
        let command = format!("seq 150000; touch {at}/{chat}; {}", wait_for_file(&flags.join("go")));
        fixture.telegram.push_text(chat, chat, command);
    }
    let running = || std::fs::read_dir(&flags).expect("a folder").count();
    let all = petasos_fakes::wait::poll(SOON * 3, || running() == CHATS as usize);
    assert!(all.is_some(), "only {} run", running());
    std::fs::write(flags.join("go"), "").expect("a flag");
    for chat in 1..=CHATS {
        let said = &fixture.wait_messages(chat, 1)[0];
        let bytes: usize = said.strip_suffix(" bytes").and_then(|it| it.parse().ok()).expect("a size");
        assert!((40_000..60_000).contains(&bytes), "chat {chat}: {said}");
    }
    let peak = peak(&fixture);
    println!("64 sessions at once: {peak} KiB at most");
    assert!(peak < 100 << 10, "{peak} KiB");
}
