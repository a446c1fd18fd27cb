//! The program in a real terminal: a pty of `script`, with keyboard input.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::support::{SOON, eventually, petasos};
use petasos_runtime::clock;
use tempfile::TempDir;

struct Terminal {
    child: Child,
    screen: Arc<(Mutex<String>, Condvar)>,
    /// Length of the text that the test has read.
    read: usize,
}

impl Terminal {
    fn open(home: &TempDir) -> Self {
        std::fs::write(home.path().join("config.yaml"), "web: {enabled: false}\n").expect("config");
        Self::running(home, "chat", &[])
    }

    #[expect(clippy::disallowed_methods, reason = "the output of a child process is read by a thread")]
    fn running(home: &TempDir, what: &str, env: &[(&str, &str)]) -> Self {
        let inner = petasos(home.path(), &[]);
        let line = format!("exec {} {what}", inner.get_program().to_string_lossy());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env_clear();
        for (key, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(key, value);
            }
        }
        command.envs(env.iter().copied());
        command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a terminal");
        let screen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let mut out = child.stdout.take().expect("piped");
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                shown.0.lock().expect("unbroken").push_str(&String::from_utf8_lossy(&bytes[..count]));
                shown.1.notify_all();
            }
        });
        Self { child, screen, read: 0 }
    }

    fn press(&mut self, keys: &str) {
        let keyboard = self.child.stdin.as_mut().expect("piped");
        keyboard.write_all(keys.as_bytes()).and_then(|()| keyboard.flush()).expect("typed");
    }

    /// Waits until this text appears after the text read so far.
    #[track_caller]
    fn wait_text(&mut self, text: &str) {
        let until = clock::monotonic() + SOON;
        let mut screen = self.screen.0.lock().expect("unbroken");
        loop {
            if let Some(at) = screen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(clock::monotonic());
            assert!(!left.is_zero(), "{text:?} never came: {}", &screen[self.read..]);
            screen = self.screen.1.wait_timeout(screen, left).expect("unbroken").0;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn interrupts_streaming_answer_and_continues_session() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.wait_text("/help lists commands");
    terminal.press("count to 500\r");
    terminal.wait_text("30,");
    terminal.press("\x03");
    terminal.wait_text("(stopped)");
    terminal.press("/status\r");
    terminal.wait_text("Session: idle");
    terminal.press("my name is Ada\r");
    terminal.wait_text("Ada");
    terminal.press("what is my name\r");
    terminal.wait_text("Ada");
    terminal.press("/exit\r");
    let ended = terminal.child.wait().expect("ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn runs_command_typed_during_answer_at_once() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.wait_text("/help lists commands");
    terminal.press("count to 500\r");
    terminal.wait_text("30,");
    terminal.press("/stop\r");
    terminal.wait_text("(stopped)");
    terminal.wait_text("Stopped. You can continue");
    terminal.press("\x04");
    let ended = terminal.child.wait().expect("ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn arrow_key_recalls_input_history() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.wait_text("/help lists commands");
    terminal.press("my name is Grace\r");
    terminal.wait_text("Grace");
    terminal.press("/exit\r");
    terminal.child.wait().expect("ends");
    let mut again = Terminal::open(&home);
    again.wait_text("/help lists commands");
    again.press("\x1b[A\x1b[A\r");
    again.wait_text("my name is Grace");
    again.wait_text("Grace");
    again.press("\x04");
    again.child.wait().expect("ends");
}

#[test]
fn terminal_start_shows_login_link_without_respawn_delay() {
    let home = TempDir::new().expect("a home");
    let env = [("API_SERVER_PORT", "0"), ("HERMES_GATEWAY_MAX_STARTS", "1")];
    for _ in 0..3 {
        let mut terminal = Terminal::running(&home, "run", &env);
        terminal.wait_text("/?token=");
        terminal.wait_text("Press Ctrl-C to stop");
        terminal.press("\x03");
        let ended = terminal.child.wait().expect("ends");
        assert!(ended.success(), "{ended}");
    }
}

#[test]
fn drain_progress_is_drawn_and_cleared() {
    let home = TempDir::new().expect("a home");
    let config = "web: {enabled: false}\nmodel: {provider: demo, demo_delay_ms: 10000}\n";
    std::fs::write(home.path().join("config.yaml"), config).expect("config");
    let mut gateway = Terminal::running(&home, "run", &[]);
    gateway.wait_text("Press Ctrl-C to stop");
    let mut chat = petasos(home.path(), &["chat", "count to 500"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let status = || petasos(home.path(), &["drain", "status"]).output().expect("runs");
    eventually("the turn runs", || crate::support::stdout(&status()).contains("thinking"));
    let mut drain = Terminal::running(&home, "drain --wait", &[]);
    drain.wait_text("draining: waiting for 1 turn running\x1b[K");
    drain.wait_text("thinking");
    let skipped = petasos(home.path(), &["drain", "skip", "terminal"]).output().expect("runs");
    assert!(skipped.status.success(), "{skipped:?}");
    drain.wait_text("\x1b[J");
    drain.wait_text("Drained, except for 1 turn running");
    let _ = chat.kill();
    let _ = chat.wait();
}
