//! What a turn costs: the real program against fakes on loopback, with a model that answers at once.
//!
//! `cargo bench --bench gateway` prints a table; figures and their conditions are kept in
//! docs/performance.md. Durable commits are included in every figure.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on stops")]

#[path = "gateway/api.rs"]
mod api;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use petasos_fakes::Keep;
use petasos_fakes::model::{Answer, Model, Request};
use petasos_fakes::telegram::{Change, Telegram};
use serde_json::json;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    telegram: Telegram,
    _model: Model,
    home: TempDir,
    /// Chats as their answers become visible.
    answered: mpsc::Receiver<i64>,
}

fn main() {
    // `cargo test --benches` builds and runs us; there is nothing to measure then.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let only: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|it| name.contains(it.as_str()));
    println!("| measure | result |\n|---|---|");
    if wanted("start") {
        starts();
    }
    if wanted("drain") {
        drains();
    }
    if wanted("latency") {
        latency(50, 200);
    }
    if wanted("long") {
        latency(50, 1000);
    }
    if wanted("throughput") {
        throughput();
    }
    if wanted("sessions") {
        sessions();
    }
    if wanted("tools") {
        flood();
        many_tools();
    }
    if wanted("api") {
        api::measure();
    }
}

/// Cold start to the first poll, memory when idle, and the way out.
fn starts() {
    let (mut polls, mut stops, mut memory) = (vec![], vec![], vec![]);
    for _ in 0..15 {
        let bench = Bench::new();
        let started = Instant::now();
        let mut gateway = bench.launch();
        let first = bench
            .telegram
            .wait_until(PATIENCE, |world| world.calls_of("getUpdates").next().map(|call| call.at));
        polls.push(first.expect("polls").duration_since(started));
        bench.telegram.push_text(1, 1, "hello");
        bench.answered.recv_timeout(PATIENCE).expect("an answer");
        memory.push(rss(gateway.id()));
        let asked = Instant::now();
        Command::new("kill").arg(gateway.id().to_string()).status().expect("kill");
        gateway.wait().expect("ends");
        stops.push(asked.elapsed());
    }
    row("cold start to first getUpdates, median", &ms(median(&mut polls)));
    memory.sort_unstable();
    row("RSS after one turn, median", &mb(memory[memory.len() / 2]));
    row("SIGTERM to exit when idle, median", &ms(median(&mut stops)));
}

/// From the marker to the published state, and back.
fn drains() {
    let bench = Bench::new();
    let mut gateway = bench.launch();
    let (marker, beside) = (bench.home.path().join(".drain_request.json"), bench.home.path().join("beside"));
    bench.await_state("running");
    let (mut begun, mut ended) = (vec![], vec![]);
    for _ in 0..100 {
        std::fs::write(&beside, r#"{"action":"drain"}"#).expect("a marker");
        let asked = Instant::now();
        std::fs::rename(&beside, &marker).expect("put in place");
        bench.await_state("draining");
        begun.push(asked.elapsed());
        let asked = Instant::now();
        std::fs::remove_file(&marker).expect("a marker");
        bench.await_state("running");
        ended.push(asked.elapsed());
    }
    row("drain marker to state `draining` on disk, median", &ms(median(&mut begun)));
    row("the same, slowest of 100", &ms(begun[begun.len() - 1]));
    row("marker removed to state `running` on disk, median", &ms(median(&mut ended)));
    end(&mut gateway);
}

/// One chat, one message after the other, after `warm` turns that are not counted.
fn latency(warm: usize, turns: usize) {
    let bench = Bench::new();
    let mut gateway = bench.launch();
    for _ in 0..warm {
        bench.ask(1);
    }
    let cpu = cpu(gateway.id());
    let mut taken: Vec<_> = (0..turns).map(|_| bench.ask(1)).collect();
    let spent = self::cpu(gateway.id()) - cpu;
    taken.sort_unstable();
    let which = format!("turns {} to {} of one session", warm + 1, warm + turns);
    let (middle, last) = (taken[turns / 2], taken[turns * 99 / 100]);
    row(&format!("latency, {which}, p50 / p99"), &format!("{} / {}", ms(middle), ms(last)));
    let turns = f64::from(u32::try_from(turns).unwrap_or(u32::MAX));
    row(&format!("CPU per turn, {which}"), &ms(spent.div_f64(turns)));
    end(&mut gateway);
}

/// 64 chats, each of which writes again when it is answered.
fn throughput() {
    const CHATS: i64 = 64;
    const TURNS: usize = 12_000;
    let bench = Bench::new();
    let mut gateway = bench.launch();
    for chat in 1..=CHATS {
        bench.telegram.push_text(chat, chat, "warm up");
    }
    for _ in 1..=CHATS {
        bench.answered.recv_timeout(PATIENCE).expect("an answer");
    }
    let cpu = cpu(gateway.id());
    let started = Instant::now();
    let mut asked: HashMap<i64, Instant> = HashMap::new();
    for chat in 1..=CHATS {
        asked.insert(chat, Instant::now());
        bench.telegram.push_text(chat, chat, "hello");
    }
    let mut taken = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let chat = bench.answered.recv_timeout(PATIENCE).expect("an answer");
        taken.extend(asked.insert(chat, Instant::now()).map(|at| at.elapsed()));
        bench.telegram.push_text(chat, chat, "hello");
    }
    let wall = started.elapsed();
    let spent = self::cpu(gateway.id()) - cpu;
    taken.sort_unstable();
    let turns = f64::from(u32::try_from(TURNS).unwrap_or(u32::MAX));
    row("turns per second, 64 sessions", &format!("{:.0}", turns / wall.as_secs_f64()));
    row(
        "latency, 64 sessions, p50 / p99",
        &format!("{} / {}", ms(taken[TURNS / 2]), ms(taken[TURNS * 99 / 100])),
    );
    row("CPU per turn, 64 sessions", &ms(spent.div_f64(turns)));
    row("RSS after 12,000 turns", &mb(rss(gateway.id())));
    end(&mut gateway);
}

/// A thousand chats, one message each.
fn sessions() {
    let bench = Bench::new();
    let mut gateway = bench.launch();
    for chat in 1..=1000 {
        bench.telegram.push_text(chat, chat, "hello");
    }
    for _ in 1..=1000 {
        bench.answered.recv_timeout(PATIENCE).expect("an answer");
    }
    row("RSS after 1,000 sessions", &mb(rss(gateway.id())));
    end(&mut gateway);
}

/// One command that prints two gigabytes.
fn flood() {
    let bench = Bench::with_tools();
    let mut gateway = bench.launch();
    bench.run(1, "seq 100000");
    bench.answered.recv_timeout(PATIENCE).expect("an answer");
    let before = peak(gateway.id());
    let started = Instant::now();
    bench.run(1, "yes 0123456789abcdef | head -c 2000000000");
    bench.answered.recv_timeout(PATIENCE).expect("an answer");
    let took = started.elapsed();
    let after = peak(gateway.id());
    row("peak RSS before and after a command that prints 2 GB", &format!("{} / {}", mb(before), mb(after)));
    row("time it took", &ms(took));
    end(&mut gateway);
}

/// 64 chats, each with a command that has printed a megabyte and still runs.
fn many_tools() {
    const CHATS: i64 = 64;
    let bench = Bench::with_tools();
    let mut gateway = bench.launch();
    let flags = bench.home.path().join("flags");
    std::fs::create_dir(&flags).expect("a folder");
    let at = flags.display();
    for chat in 1..=CHATS {
        bench
            .run(chat, &format!("seq 150000; touch {at}/{chat}; while [ ! -e {at}/go ]; do sleep 0.1; done"));
    }
    let (here, started) = (|| std::fs::read_dir(&flags).expect("a folder").count(), Instant::now());
    while here() < 64 {
        assert!(started.elapsed() < PATIENCE, "only {} run", here());
        std::thread::sleep(Duration::from_millis(20));
    }
    row("RSS while 64 sessions run a command that has printed 1 MB", &mb(rss(gateway.id())));
    std::fs::write(flags.join("go"), "").expect("a flag");
    for _ in 1..=CHATS {
        bench.answered.recv_timeout(PATIENCE).expect("an answer");
    }
    row("peak RSS of that", &mb(peak(gateway.id())));
    end(&mut gateway);
}

impl Bench {
    fn new() -> Self {
        Self::with("", |_| Answer::text("A short answer."))
    }

    /// The model runs what it is told to.
    fn with_tools() -> Self {
        let more = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n";
        Self::with(more, |request| match request.messages().last().filter(|row| row["role"] == "tool") {
            Some(_result) => Answer::text("done"),
            None => Answer::tool("terminal", json!({ "command": request.last_user, "timeout": 600 })),
        })
    }

    fn with(more: &str, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let telegram = Telegram::start().expect("fake telegram");
        let model = Model::start().expect("fake model");
        model.respond(answer);
        model.record(Keep::Nothing);
        telegram.record(Keep::Last(64));
        let (say, answered) = mpsc::channel();
        telegram.observe(move |change| {
            if let Change::Sent(message) = change {
                let _ = say.send(message.chat);
            }
        });
        let home = TempDir::new().expect("a home");
        let config = format!(
            "model:\n  default: fake\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-bench\n\
             platforms:\n  telegram:\n    enabled: true\n    token: \"123:abc\"\n    extra:\n      base_url: {}/bot\n\
             web:\n  port: 0\n{more}",
            model.url(),
            telegram.url(),
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("config");
        Self { telegram, _model: model, home, answered }
    }

    fn launch(&self) -> Child {
        self.launch_with(&[])
    }

    fn launch_with(&self, env: &[(&str, &str)]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_petasos"));
        command
            .args(["run", "--quiet"])
            .env("PETASOS_HOME", self.home.path())
            .env("GATEWAY_ALLOW_ALL_USERS", "true")
            .env("HERMES_GATEWAY_MAX_STARTS", "0")
            .envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("petasos starts")
    }

    fn await_state(&self, want: &str) {
        let (path, started) = (self.home.path().join("gateway_state.json"), Instant::now());
        let want = format!("\"gateway_state\":\"{want}\"");
        while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&want)) {
            assert!(started.elapsed() < PATIENCE, "never {want}");
        }
    }

    fn run(&self, chat: i64, command: &str) {
        self.telegram.push_text(chat, chat, command);
    }

    fn ask(&self, chat: i64) -> Duration {
        let asked = Instant::now();
        self.telegram.push_text(chat, chat, "hello");
        self.answered.recv_timeout(PATIENCE).expect("an answer");
        asked.elapsed()
    }
}

fn end(gateway: &mut Child) {
    let _ = gateway.kill();
    let _ = gateway.wait();
}

fn row(name: &str, value: &str) {
    println!("| {name} | {value} |");
}

fn ms(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}

fn mb(kib: u64) -> String {
    format!("{:.1} MB", f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0)
}

fn median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn rss(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most it ever had.
fn peak(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, which: &str) -> u64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with(which)).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).expect("alive");
    let (_, fields) = stat.rsplit_once(')').expect("a stat line");
    let ticks =
        |at: usize| fields.split_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok()).expect("ticks");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
