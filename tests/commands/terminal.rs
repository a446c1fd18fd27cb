//! The program in a real terminal (a pty made by `script`), typed into as a person would.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use crate::support::{SOON, petasos};
use tempfile::TempDir;

struct Terminal {
    child: Child,
    screen: Arc<(Mutex<String>, Condvar)>,
    /// How much of the screen the test has read.
    read: usize,
}

impl Terminal {
    fn open(home: &TempDir) -> Self {
        std::fs::write(home.path().join("config.yaml"), "web: {enabled: false}\n").expect("config");
        Self::running(home, "chat", &[])
    }

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
        let (mut out, shown) = (child.stdout.take().expect("piped"), screen.clone());
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

    /// Waits until this appears after everything read so far.
    #[track_caller]
    fn see(&mut self, text: &str) {
        let until = Instant::now() + SOON;
        let mut screen = self.screen.0.lock().expect("unbroken");
        loop {
            if let Some(at) = screen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
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
fn an_answer_streams_is_interrupted_and_the_session_goes_on() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.see("/help lists commands");
    terminal.press("count to 500\r");
    terminal.see("30,");
    terminal.press("\x03");
    terminal.see("(stopped)");
    terminal.press("/status\r");
    terminal.see("Session: idle");
    terminal.press("my name is Ada\r");
    terminal.see("Ada");
    terminal.press("what is my name\r");
    terminal.see("Ada");
    terminal.press("/exit\r");
    let ended = terminal.child.wait().expect("ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_command_typed_while_an_answer_runs_is_obeyed_at_once() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.see("/help lists commands");
    terminal.press("count to 500\r");
    terminal.see("30,");
    terminal.press("/stop\r");
    terminal.see("(stopped)");
    terminal.see("Stopped. The session goes on.");
    terminal.press("\x04");
    let ended = terminal.child.wait().expect("ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn what_was_typed_before_comes_back_with_the_arrow_key() {
    let home = TempDir::new().expect("a home");
    let mut terminal = Terminal::open(&home);
    terminal.see("/help lists commands");
    terminal.press("my name is Grace\r");
    terminal.see("Grace");
    terminal.press("/exit\r");
    terminal.child.wait().expect("ends");
    let mut again = Terminal::open(&home);
    again.see("/help lists commands");
    again.press("\x1b[A\x1b[A\r");
    again.see("my name is Grace");
    again.see("Grace");
    again.press("\x04");
    again.child.wait().expect("ends");
}

#[test]
fn a_person_sees_a_link_that_lets_them_in_and_never_waits_for_a_storm() {
    let home = TempDir::new().expect("a home");
    let env = [("API_SERVER_PORT", "0"), ("HERMES_GATEWAY_MAX_STARTS", "1")];
    for _ in 0..3 {
        let mut terminal = Terminal::running(&home, "run", &env);
        terminal.see("/?token=");
        terminal.see("Ctrl-C stops.");
        terminal.press("\x03");
        let ended = terminal.child.wait().expect("ends");
        assert!(ended.success(), "{ended}");
    }
}

#[test]
fn a_drain_that_is_waited_for_is_drawn_and_wiped() {
    let home = TempDir::new().expect("a home");
    let config = "web: {enabled: false}\nmodel: {provider: demo, demo_delay_ms: 10000}\n";
    std::fs::write(home.path().join("config.yaml"), config).expect("config");
    let mut gateway = Terminal::running(&home, "run", &[]);
    gateway.see("Ctrl-C stops.");
    let mut chat = petasos(home.path(), &["chat", "count to 500"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let until = Instant::now() + SOON;
    let status = || petasos(home.path(), &["drain", "status"]).output().expect("runs");
    while !crate::support::stdout(&status()).contains("thinking") {
        assert!(Instant::now() < until, "never at work: {:?}", status());
    }
    let mut drain = Terminal::running(&home, "drain --wait", &[]);
    drain.see("draining: waiting for 1 session at work\x1b[K");
    drain.see("thinking");
    let skipped = petasos(home.path(), &["drain", "skip", "terminal"]).output().expect("runs");
    assert!(skipped.status.success(), "{skipped:?}");
    drain.see("\x1b[J");
    drain.see("drained, except for 1 session at work");
    let _ = chat.kill();
    let _ = chat.wait();
}
