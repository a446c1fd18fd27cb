//! Compatibility with the relay transport of hermes-agent 0.19. Skipped if it is not installed, unless
//! `PETASOS_HERMES_REQUIRED=1`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use crate::support::{ANN, BOT, Bench, SOON};
use petasos_core::Millis;
use serde_json::{Value, json};

/// Answers inbound events in a task of its own, like its runner. Commands come as words on stdin.
const PROGRAM: &str = r#"
import asyncio, json, sys
from gateway.relay.ws_transport import WebSocketRelayTransport

def say(told, **more):
    print(json.dumps({"told": told, **more}), flush=True)

async def main(url, bot, gateway, secret):
    relay = WebSocketRelayTransport(
        url, "telegram", bot, gateway_id=gateway, upgrade_secret=secret, reconnect=True, reconnect_backoff_s=0.05
    )
    tasks = set()

    async def answer(event):
        action = {
            "op": "send", "chat_id": event.source.chat_id, "content": "echo: " + event.text,
            "reply_to": event.message_id, "metadata": {"user_id": event.source.user_id},
        }
        say("answered", result=await relay.send_outbound(action, platform=event.source.platform.value))

    async def hear(event):
        say("event", text=event.text, kind=event.message_type.value, chat=event.source.chat_id)
        task = asyncio.ensure_future(answer(event))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    relay.set_inbound_handler(hear)
    await relay.connect()
    described = await relay.handshake()
    say("described", platform=described.platform, longest=described.max_message_length, unit=described.len_unit)
    while True:
        word = (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()
        if word == "info":
            say("info", info=await relay.get_chat_info("7"))
        elif word == "fly":
            say("flew", result=await relay.send_outbound({"op": "fly", "chat_id": "7"}))
        elif word == "sleep":
            say("asleep", granted=await relay.go_dormant())
        elif word == "revoked":
            while not relay.auth_revoked:
                await asyncio.sleep(0.01)
            say("revoked")
        else:
            break
    await relay.disconnect()

asyncio.run(main(*sys.argv[1:]))
"#;

/// `None`: not installed; logged.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let python = target.join("hermes-venv/bin/python");
    if python.exists() {
        return Some(python);
    }
    assert!(std::env::var_os("PETASOS_HERMES_REQUIRED").is_none(), "{} is missing", python.display());
    eprintln!("NOT RUN: there is no gateway of another make here; scripts/test installs one");
    None
}

struct Stranger {
    child: Child,
    words: ChildStdin,
    lines: mpsc::Receiver<Value>,
}

impl Stranger {
    #[expect(clippy::disallowed_methods, reason = "the output of a child process is read by a thread")]
    fn start(python: &Path, bench: &Bench, secret: &str) -> Self {
        let program = bench.home.path().join("stranger.py");
        std::fs::write(&program, PROGRAM).expect("written");
        let mut child = Command::new(python)
            .arg(program)
            .args([&format!("http://{}", bench.address()), BOT, "gw-1", secret])
            .env("HERMES_HOME", bench.home.path().join("stranger"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let words = child.stdin.take().expect("its input");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let (tell, lines) = mpsc::sync_channel(64);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = tell.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        Self { child, words, lines }
    }

    fn command(&mut self, word: &str) {
        writeln!(self.words, "{word}").expect("it listens");
    }

    #[track_caller]
    fn wait_report(&self, want: &str) -> Value {
        let line = self.lines.recv_timeout(SOON).expect("it says something");
        assert_eq!(line["told"], want, "{line}");
        line
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serves_hermes_agent_from_hello_to_revocation() {
    let Some(python) = python() else { return };
    let (bench, secret) = Bench::single();
    bench.write_message("while the gateway was away 😀");
    bench.wait_taken();
    let mut stranger = Stranger::start(&python, &bench, &secret);
    let described = stranger.wait_report("described");
    assert_eq!((&described["platform"], &described["unit"]), (&json!("telegram"), &json!("utf16")));
    assert!(described["longest"].as_u64().is_some_and(|longest| longest > 1000), "{described}");
    let event = stranger.wait_report("event");
    assert_eq!((&event["text"], &event["kind"]), (&json!("while the gateway was away 😀"), &json!("text")));
    assert_eq!(stranger.wait_report("answered")["result"]["success"], true);
    bench.wait_depth("i1", 0);
    bench.write_message("/status");
    assert_eq!(stranger.wait_report("event")["kind"], "command");
    assert_eq!(stranger.wait_report("answered")["result"]["success"], true);
    stranger.command("info");
    assert_eq!(stranger.wait_report("info")["info"]["type"], "dm");
    stranger.command("fly");
    assert_eq!(stranger.wait_report("flew")["result"]["error"], "unsupported op: fly");
    stranger.command("sleep");
    assert_eq!(stranger.wait_report("asleep")["granted"], true);
    bench.write_message("while you slept");
    assert_eq!(stranger.wait_report("event")["text"], "while you slept");
    assert_eq!(stranger.wait_report("answered")["result"]["success"], true);
    bench.wait_depth("i1", 0);
    assert_eq!(
        bench.telegram.texts(ANN),
        ["echo: while the gateway was away 😀", "echo: /status", "echo: while you slept"]
    );
    let now = Millis(petasos_fakes::relay::now() * 1000);
    bench.write(|tx| tx.revoke_gateway(&"gw-1".into(), now));
    stranger.command("revoked");
    stranger.wait_report("revoked");
}
