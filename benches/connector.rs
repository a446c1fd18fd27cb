//! Capacity and throughput of a connector: the real program between a fake Telegram and fake gateways.
//!
//! `cargo bench --bench connector` prints a table; results and their conditions are in docs/performance.md. Every event is
//! on disk before the platform gets its acknowledgement, and deleted after the gateway's acknowledgement.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot go on stops")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use petasos_connector::DATABASE;
use petasos_core::{GatewayId, InstanceId, Millis, Platform};
use petasos_fakes::Retention;
use petasos_fakes::model::{Answer, Model};
use petasos_fakes::relay::Fleet;
use petasos_fakes::relay::fresh_token;
use petasos_fakes::telegram::{Incoming, Telegram};
use petasos_store::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Author of messages to the first instance; the others follow.
const FIRST: i64 = 1000;

struct ConnectorFixture {
    telegram: Telegram,
    _home: TempDir,
    child: Child,
    address: SocketAddr,
    secrets: Vec<String>,
}

fn main() {
    // `cargo test --benches` also runs this binary; it must do nothing then.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let only: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|it| name.contains(it.as_str()));
    println!("| measure | result |\n|---|---|");
    if wanted("idle") {
        idle(5000);
    }
    if wanted("throughput") {
        throughput(64, 30_000);
    }
    if wanted("latency") {
        latency(64, 5_000);
    }
    if wanted("wake") {
        wake(15);
    }
}

/// Connected gateways without traffic.
fn idle(gateways: usize) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("as many files as there may be");
    let fixture = ConnectorFixture::start(gateways);
    let before = rss(fixture.child.id());
    let started = Instant::now();
    let crowd = fixture.crowd();
    let took = started.elapsed();
    // Covers one health check of every gateway.
    std::thread::sleep(Duration::from_secs(17));
    row("RSS of a connector without gateways", &mb(before));
    row(&format!("RSS with {gateways} connected idle gateways"), &mb(rss(fixture.child.id())));
    row(&format!("{gateways} gateways connected within"), &ms(took));
    drop(crowd);
}

/// Maximum throughput from the platform to the gateways.
fn throughput(instances: usize, events: usize) {
    let fixture = ConnectorFixture::start(instances);
    let crowd = fixture.crowd();
    let texts: Vec<_> =
        (0..events).map(|at| Incoming::text(author(at, instances), author(at, instances), "hello")).collect();
    let started = Instant::now();
    fixture.telegram.push_many(texts);
    for at in 0..events {
        crowd.next(TIMEOUT).unwrap_or_else(|| panic!("{at} of {events} came"));
    }
    let rate = f64::from(u32::try_from(events).unwrap_or(u32::MAX)) / started.elapsed().as_secs_f64();
    row(&format!("durable deliveries per second, {instances} instances"), &format!("{rate:.0}"));
}

/// Latency at 500 events per second.
fn latency(instances: usize, events: usize) {
    const EVERY: Duration = Duration::from_millis(2);
    let fixture = ConnectorFixture::start(instances);
    let crowd = fixture.crowd();
    let mut sent = Vec::with_capacity(events);
    let started = Instant::now();
    for at in 0..events {
        let due = started + EVERY * u32::try_from(at).unwrap_or(u32::MAX);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        fixture.telegram.push_text(author(at, instances), author(at, instances), at.to_string());
    }
    let mut taken: Vec<_> = (0..events)
        .map(|_| {
            let delivered = crowd.next(TIMEOUT).expect("all of them come");
            let at: usize = delivered.text.parse().expect("a number");
            delivered.at.duration_since(sent[at])
        })
        .collect();
    taken.sort_unstable();
    let middle = taken[events / 2];
    let last = taken[events * 99 / 100];
    row("delivery at 500 per second, p50 / p99", &format!("{} / {}", ms(middle), ms(last)));
}

/// From the start of a gateway with waiting events to its first model call.
fn wake(rounds: usize) {
    let fixture = ConnectorFixture::start(1);
    let model = Model::start().expect("fake model");
    let (asked, questions) = mpsc::channel();
    model.respond(move |_| {
        // The receiver is gone when the benchmark ends.
        let _ = asked.send(Instant::now());
        Answer::text("A short answer.")
    });
    let home = TempDir::new().expect("a home");
    let config = format!(
        "model:\n  default: fake\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-bench\nweb:\n  enabled: false\n\
         gateway:\n  relay_url: http://{}\n  relay_platforms: [telegram]\n  relay_id: gw-0\n  relay_secret: {}\n",
        model.url(),
        fixture.address,
        fixture.secrets[0],
    );
    std::fs::write(home.path().join("config.yaml"), config).expect("config");
    let mut taken = vec![];
    for round in 0..rounds {
        fixture.telegram.push_text(FIRST, FIRST, format!("question {round}"));
        let kept = fixture.telegram.wait_until(TIMEOUT, |world| (world.pending_updates() == 0).then_some(()));
        kept.expect("it is kept");
        let started = Instant::now();
        let mut gateway =
            petasos(home.path(), &["run", "--quiet"]).stdout(Stdio::null()).spawn().expect("petasos starts");
        taken.push(questions.recv_timeout(TIMEOUT).expect("a question").duration_since(started));
        let shown =
            fixture.telegram.wait_until(TIMEOUT, |world| (world.texts(FIRST).len() > round).then_some(()));
        shown.expect("an answer");
        Command::new("kill").arg(gateway.id().to_string()).status().expect("kill");
        gateway.wait().expect("ends");
    }
    taken.sort_unstable();
    row("start of a woken gateway to its first turn, median", &ms(taken[rounds / 2]));
    row(&format!("the same, slowest of {rounds}"), &ms(taken[rounds - 1]));
}

/// Assigns messages to authors in turn.
fn author(at: usize, instances: usize) -> i64 {
    FIRST + i64::try_from(at % instances).unwrap_or_default()
}

impl ConnectorFixture {
    /// A connector with `gateways` gateways, each with its own instance and author.
    fn start(gateways: usize) -> Self {
        let telegram = Telegram::start().expect("fake telegram");
        telegram.set_retention(Retention::Last(64));
        let home = TempDir::new().expect("a home");
        let config = format!(
            "connector:\n  listen: 127.0.0.1:0\n  platforms:\n    telegram:\n      token: \"123:abc\"\n      \
             extra:\n        base_url: {}/bot\n",
            telegram.url()
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("config");
        let mut store = Store::open_connector(home.path().join(DATABASE)).expect("a store");
        let platform = Platform::parse("telegram").expect("known");
        let secrets = store.write(|tx| {
            tx.add_tenant(&"t".into(), Millis(1))?;
            let one = |at: usize| {
                let instance = InstanceId(format!("i-{at}"));
                tx.ensure_instance(&instance, &"t".into(), Millis(1))?;
                tx.bind_author(platform, &author(at, gateways).to_string(), &instance)?;
                let gateway = tx.add_gateway(&GatewayId(format!("gw-{at}")), &instance, Millis(1))?;
                Ok(gateway.secrets.into_iter().next().unwrap_or_default())
            };
            (0..gateways).map(one).collect::<petasos_store::Result<Vec<_>>>()
        });
        let secrets = secrets.expect("written");
        store.close().expect("closed");
        let mut child = petasos(home.path(), &["connector", "run", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("petasos starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.parse().expect("an address");
        Self { telegram, _home: home, child, address, secrets }
    }

    fn crowd(&self) -> Fleet {
        let bearers = self.secrets.iter().enumerate();
        let bearers = bearers.map(|(at, secret)| fresh_token(&format!("gw-{at}"), secret)).collect();
        Fleet::dial(self.address, bearers, "telegram", "123").expect("all of them are let in")
    }
}

impl Drop for ConnectorFixture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn petasos(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_petasos"));
    command.args(args).env("PETASOS_HOME", home).env("HERMES_GATEWAY_MAX_STARTS", "0");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
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

fn rss(pid: u32) -> u64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
