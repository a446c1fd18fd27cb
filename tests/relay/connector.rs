//! The real connector between a fake Telegram and gateways, across kills, sleep and wake.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::foreign_client::{ForeignClient, kill_count};
use crate::support::{ProgramFixture, SOON, eventually, expect_success, petasos};
use petasos_fakes::relay::{Acks, Peer, Received, WakeServer, fresh_token};
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_fakes::{Telegram, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const USER: i64 = 7;
pub(crate) const MARK: &str = "Recovered reply";

/// A connector in its own home with one gateway that admits every user.
pub(crate) struct ConnectorFixture {
    pub(crate) telegram: Telegram,
    pub(crate) home: TempDir,
    child: Option<Child>,
    address: Option<SocketAddr>,
    secret: String,
}

impl ConnectorFixture {
    pub(crate) fn new(wake: Option<&WakeServer>) -> Self {
        Self::with_config(wake, "wake_cooldown: 0.01")
    }

    /// `more`: a further line of the `connector` section.
    fn with_config(wake: Option<&WakeServer>, more: &str) -> Self {
        let telegram = Telegram::start().expect("a fake");
        let home = TempDir::new().expect("a home");
        let hosts = wake.map(|server| server.address().to_string()).unwrap_or_default();
        let config = format!(
            "connector:\n  listen: 127.0.0.1:0\n  single_instance: mine\n  {more}\n  wake_hosts: [{hosts:?}]\n  \
             platforms:\n    telegram:\n      token: \"123:abc\"\n      extra:\n        base_url: {}/bot\n        \
             poll_backoff_base: 0.05\n",
            telegram.url()
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("a configuration");
        let run = |args: &[&str]| expect_success(&petasos(home.path(), args).output().expect("petasos runs"));
        run(&["connector", "tenant", "add", "me"]);
        let url = wake.map(WakeServer::url).unwrap_or_default();
        let mut add =
            vec!["connector", "gateway", "add", "gw", "--tenant", "me", "--instance", "mine", "--json"];
        if wake.is_some() {
            add.extend(["--wake-url", url.as_str()]);
        }
        let added: Value = serde_json::from_str(&run(&add)).expect("JSON");
        assert_eq!(added["gatewayId"], "gw");
        let secret = added["secret"].as_str().expect("a secret").to_owned();
        Self { telegram, home, child: None, address: None, secret }
    }

    pub(crate) fn start(&mut self) {
        assert!(self.start_with(&[]), "the connector exited before it listened");
    }

    /// `false`: the process exited before it listened.
    fn start_with(&mut self, env: &[(&str, &str)]) -> bool {
        let mut command = petasos(self.home.path(), &["connector", "run", "--quiet"]);
        if let Some(address) = self.address {
            command.args(["--listen", &address.to_string()]);
        }
        let mut child = command
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("petasos starts");
        let out = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        if line.is_empty() {
            child.wait().expect("gone");
            return false;
        }
        let address = line.trim().rsplit_once("http://").expect("an address").1.parse();
        self.address = Some(address.expect("an address"));
        self.child = Some(child);
        true
    }

    fn has_exited(&mut self) -> bool {
        let ended = self.child.as_mut().is_none_or(|child| child.try_wait().expect("a child").is_some());
        if ended {
            self.child = None;
        }
        ended
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("running");
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().expect("running").id()
    }

    pub(crate) fn terminate(&mut self) {
        let mut child = self.child.take().expect("running");
        let sent = std::process::Command::new("kill").arg(child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        child.wait().expect("gone");
    }

    pub(crate) fn connect(&self, acks: Acks) -> Option<Peer> {
        let bearer = fresh_token("gw", &self.secret);
        let peer = Peer::dial(self.address.expect("started once"), Some(&bearer), acks).ok()?;
        peer.hello("telegram", "123");
        Some(peer)
    }

    pub(crate) fn status(&self) -> Value {
        crate::support::expect_json(
            &petasos(self.home.path(), &["connector", "status", "--json"]).output().expect("petasos runs"),
        )
    }

    pub(crate) fn queued(&self) -> u64 {
        self.status()["instances"][0]["entries"].as_u64().expect("a number")
    }

    fn api_calls(&self) -> u64 {
        self.telegram.read(|state| state.call_count())
    }
}

impl Drop for ConnectorFixture {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// Adds the buffer ids of every received message to `got`.
fn collect_buffer_ids(got: &mut BTreeMap<String, HashSet<String>>, peer: &Peer) {
    peer.read(|received| {
        for frame in received.of_type("inbound") {
            let id = frame["bufferId"].as_str().expect("a buffer id").to_owned();
            let text = frame["event"]["text"].as_str().expect("a text").to_owned();
            got.entry(text).or_default().insert(id);
        }
    });
}

/// A last gateway receives everything: each message arrives, under one buffer id.
fn assert_all_delivered_once(
    connector: &ConnectorFixture,
    got: &mut BTreeMap<String, HashSet<String>>,
    sent: usize,
) {
    let last = connector.connect(Acks::All).expect("it listens");
    eventually("everything has arrived", || {
        collect_buffer_ids(got, &last);
        got.len() == sent && connector.telegram.pending_updates() == 0
    });
    eventually("the queue is empty", || connector.queued() == 0);
    collect_buffer_ids(got, &last);
    let twice: Vec<_> = got.iter().filter(|(_, numbers)| numbers.len() > 1).collect();
    assert!(twice.is_empty(), "delivered under two buffer ids: {twice:?}");
    assert_eq!(got.len(), sent);
}

#[test]
fn connector_killed_at_any_step_keeps_messages_and_ids() {
    let mut connector = ConnectorFixture::new(None);
    let mut got = BTreeMap::new();
    let mut sent = 0;
    for round in 0..40_u64 {
        connector.start();
        let peer = connector.connect(Acks::All).expect("it listens");
        let texts: Vec<_> =
            (sent..sent + 5).map(|number| Incoming::text(USER, USER, number.to_string())).collect();
        sent += 5;
        connector.telegram.push_many(texts);
        // Observable steps: calls of Telegram, and frames that the gateway receives.
        let before = connector.api_calls();
        let steps = 1 + round % 14;
        eventually("enough steps", || {
            let received = peer.read(|received| received.frames.len()) as u64;
            let everything = received > 5 && connector.telegram.pending_updates() == 0;
            connector.api_calls() - before + received >= steps || everything
        });
        connector.kill();
        peer.wait_until(SOON, |received| received.closed.clone()).expect("cut off");
        collect_buffer_ids(&mut got, &peer);
    }
    connector.start();
    assert_all_delivered_once(&connector, &mut got, sent);
}

#[test]
fn killed_connector_keeps_chat_rate_limit() {
    const BAN: Duration = Duration::from_secs(8);
    let mut connector = ConnectorFixture::new(None);
    connector.telegram.on("sendMessage").does(Fault::too_many(BAN.as_secs()));
    connector.start();
    connector.telegram.push_text(USER, USER, "hello");
    let action = json!({"op": "send", "chat_id": USER.to_string(), "content": "yes", "reply_to": null, "metadata": {}});
    let send = |peer: &Peer, number: &str| {
        peer.outbound(number, &action);
        peer.wait_result(number, SOON).expect("an answer")["success"] == true
    };
    let peer = connector.connect(Acks::All).expect("it listens");
    assert!(
        peer.wait_until(SOON, |received| (!received.texts().is_empty()).then_some(())).is_some(),
        "the chat is unknown"
    );
    assert!(!send(&peer, "refused"));
    let refused = connector.telegram.calls_of("sendMessage")[0].at;
    eventually("stored", || connector.status()["rate_limits"][0]["name"] == "7");
    connector.kill();
    connector.start();
    let shown = expect_success(
        &petasos(connector.home.path(), &["connector", "status"]).output().expect("petasos runs"),
    );
    assert!(shown.contains("telegram:7 is rate limited until"), "{shown}");
    let peer = connector.connect(Acks::All).expect("it listens");
    let mut tries = 0;
    eventually("sent", || {
        tries += 1;
        send(&peer, &format!("try {tries}"))
    });
    let sent: Vec<_> =
        connector.telegram.calls_of("sendMessage").iter().map(|call| call.at - refused).collect();
    assert!(tries > 1 && sent.len() == 2, "{tries} tries, {sent:?}");
    // The fake and the connector start to count at slightly different moments.
    assert!(sent[1] + Duration::from_millis(50) >= BAN, "{sent:?}");
    eventually("the row is deleted", || connector.status()["rate_limits"] == json!([]));
}

#[test]
fn connector_kills_beside_foreign_client_lose_nothing() {
    let mut connector = ConnectorFixture::new(None);
    connector.start();
    let client = ForeignClient::start(&connector.home.path().join("connector.db"), "queue");
    let mut got = BTreeMap::new();
    let mut sent = 0;
    for round in 0..kill_count() {
        let peer = connector.connect(Acks::All).expect("it listens");
        client.wait_next_round();
        connector
            .telegram
            .push_many((sent..sent + 10).map(|number| Incoming::text(USER, USER, number.to_string())));
        sent += 10;
        // Killed after none, some or all of the messages were delivered.
        let enough = usize::try_from(round * 3 % 11).expect("a count");
        eventually("enough messages", || peer.read(|received| received.texts().len()) >= enough);
        client.wait_next_round();
        connector.kill();
        peer.wait_until(SOON, |received| received.closed.clone()).expect("cut off");
        collect_buffer_ids(&mut got, &peer);
        connector.start();
    }
    assert_all_delivered_once(&connector, &mut got, sent);
}

#[test]
fn connector_recovers_removed_files() {
    let mut connector = ConnectorFixture::new(None);
    connector.start();
    let peer = connector.connect(Acks::All).expect("it listens");
    connector.telegram.push_text(USER, USER, "before");
    eventually("it comes", || peer.read(|received| received.texts().contains(&"before".to_owned())));
    std::fs::remove_file(connector.home.path().join("connector.db-wal")).expect("removed");
    connector.telegram.push_text(USER, USER, "after");
    eventually("it comes", || peer.read(|received| received.texts().contains(&"after".to_owned())));
    eventually("the status tells", || connector.status()["store_recoveries"] == 1);
    eventually("the queue is empty", || connector.queued() == 0);
    connector.kill();
    connector.start();
    let again = connector.connect(Acks::All).expect("it listens");
    connector.telegram.push_text(USER, USER, "last");
    eventually("it comes", || again.read(|received| received.texts().contains(&"last".to_owned())));
    assert_eq!(again.read(|received| received.texts().len()), 1, "a message arrived twice");
}

#[test]
fn stop_after_log_removal_loses_nothing() {
    for copy_is_possible in [true, false] {
        let mut connector = ConnectorFixture::new(None);
        connector.start();
        connector.telegram.push_text(USER, USER, "kept");
        eventually("it is queued", || connector.queued() == 1);
        if !copy_is_possible {
            std::fs::create_dir(connector.home.path().join("connector.db-recovery~")).expect("a directory");
        }
        // The stop happens before the next idle check, which runs every two seconds.
        std::fs::remove_file(connector.home.path().join("connector.db-wal")).expect("removed");
        connector.terminate();
        connector.start();
        let peer = connector.connect(Acks::All).expect("it listens");
        eventually("it comes", || peer.read(|received| received.texts() == ["kept"]));
    }
}

/// Two messages, one answer, and a gateway that goes idle. `false`: the connector died before the end.
fn run_exchange(
    connector: &mut ConnectorFixture,
    round: usize,
    got: &mut BTreeMap<String, HashSet<String>>,
) -> bool {
    let Some(peer) = connector.connect(Acks::All) else { return false };
    let wait_unless_killed =
        |peer: &Peer, connector: &mut ConnectorFixture, done: &dyn Fn(&Received) -> bool| {
            eventually(&format!("done or killed in round {round}"), || {
                if peer.read(|received| done(received)) {
                    return Some(true);
                }
                connector.has_exited().then_some(false)
            })
        };
    let all = wait_unless_killed(&peer, connector, &|received| {
        (0..2).all(|at| received.texts().contains(&format!("{round}-{at}")))
    });
    let answered = all && {
        peer.outbound(&format!("r{round}"), &answer_action(round));
        wait_unless_killed(&peer, connector, &|received| received.of_type("outbound_result").next().is_some())
    };
    let idle = answered && {
        peer.going_idle();
        wait_unless_killed(&peer, connector, &|received| received.of_type("going_idle_ack").next().is_some())
    };
    collect_buffer_ids(got, &peer);
    idle
}

fn answer_action(round: usize) -> Value {
    json!({"op": "send", "chat_id": "7", "content": format!("answer {round}."), "reply_to": null, "metadata": {}})
}

#[test]
fn connector_killed_at_every_commit_keeps_exactly_once() {
    let mut connector = ConnectorFixture::new(None);
    let mut got = BTreeMap::new();
    let mut rounds = 0;
    for side in ["Before", "After"] {
        for number in 1.. {
            let commit = format!("Connector:{side}:{number}");
            let texts = (0..2).map(|at| Incoming::text(USER, USER, format!("{rounds}-{at}")));
            connector.telegram.push_many(texts);
            let up = connector.start_with(&[("PETASOS_DIE_AT", &commit)]);
            if up && run_exchange(&mut connector, rounds, &mut got) {
                connector.kill();
                assert!(number > 5, "an exchange has more than {number} commits");
                rounds += 1;
                break;
            }
            // The next process continues: it answers the same request, or reports an unknown outcome.
            connector.start();
            let peer = connector.connect(Acks::All).expect("it listens");
            peer.outbound(&format!("r{rounds}"), &answer_action(rounds));
            let answer = peer.wait_result(&format!("r{rounds}"), SOON).expect("an answer");
            let text = format!("answer {rounds}.");
            let shown = connector.telegram.texts(USER).iter().filter(|it| **it == text).count();
            let known = answer["success"] == true && shown == 1;
            let unknown = answer["ambiguous"] == true && shown <= 1;
            assert!(known || unknown, "{commit}: {shown} shown, {answer}");
            eventually("both have arrived", || {
                collect_buffer_ids(&mut got, &peer);
                (0..2).all(|at| got.contains_key(&format!("{rounds}-{at}")))
            });
            connector.kill();
            rounds += 1;
        }
    }
    connector.start();
    let last = connector.connect(Acks::All).expect("it listens");
    eventually("the queue is empty", || connector.queued() == 0);
    collect_buffer_ids(&mut got, &last);
    let twice: Vec<_> = got.iter().filter(|(_, numbers)| numbers.len() > 1).collect();
    assert!(twice.is_empty(), "delivered under two buffer ids: {twice:?}");
    assert_eq!(got.len(), rounds * 2);
}

#[test]
fn kill_during_send_leaves_marked_copy_and_unblocks_lane() {
    // With the message shown or not: the killed process cannot know.
    for fault in [Fault::HangAfter, Fault::Hang] {
        let mut connector = ConnectorFixture::new(None);
        connector.start();
        let mut gateway = gateway_behind(&connector, "");
        gateway.launch();
        connector.telegram.on("sendMessage").does(fault);
        connector.telegram.push_text(USER, USER, "one");
        eventually("it is being sent", || connector.telegram.calls_of("sendMessage").len() == 1);
        connector.kill();
        connector.telegram.clear_faults();
        connector.start();
        connector.telegram.push_text(USER, USER, "two");
        let answered = |want: &str| {
            let all = connector.telegram.texts(USER);
            all.iter().filter(|text| text.contains(want)).cloned().collect::<Vec<_>>()
        };
        let both = connector.telegram.wait_until(Duration::from_secs(60), |state| {
            let texts = state.texts(USER);
            let marked = texts.iter().any(|it| it.contains(MARK) && it.contains("echo: one"));
            (marked && texts.iter().any(|it| it == "echo: two")).then_some(())
        });
        assert!(both.is_some(), "{:?} {}", connector.telegram.texts(USER), gateway.kill());
        let one = answered("echo: one");
        let two = answered("echo: two");
        assert_eq!(one.iter().filter(|it| it.contains(MARK)).count(), 1, "{one:?}");
        assert!(one.len() <= 2 && two.len() == 1, "{one:?} {two:?}");
    }
}

#[test]
fn hundred_sleep_wake_cycles_lose_nothing() {
    let wake_server = WakeServer::start().expect("a server");
    let mut connector = ConnectorFixture::new(Some(&wake_server));
    connector.start();
    for round in 0..100 {
        let calls = wake_server.calls().len();
        connector.telegram.push_text(USER, USER, format!("question {round}"));
        assert!(wake_server.wait_for(calls + 1, SOON), "not woken in round {round}");
        let peer = connector.connect(Acks::All).expect("it listens");
        let question = peer.wait_until(SOON, |received| received.texts().first().cloned());
        assert_eq!(question, Some(format!("question {round}")));
        let answer = format!("answer {round}");
        let send = json!({"op": "send", "chat_id": "7", "content": answer, "reply_to": null, "metadata": {}});
        peer.outbound(&format!("r{round}"), &send);
        assert_eq!(peer.wait_result(&format!("r{round}"), SOON).expect("an answer")["success"], true);
        peer.going_idle();
        let granted = peer.wait_until(SOON, |received| received.of_type("going_idle_ack").next().map(|_| ()));
        granted.expect("granted");
        assert_eq!(peer.read(|received| received.texts().len()), 1, "in round {round}");
    }
    let want: Vec<_> = (0..100).map(|round| format!("answer {round}")).collect();
    assert_eq!(connector.telegram.texts(USER), want);
    assert_eq!(connector.queued(), 0);
}

/// A gateway behind this connector. `more`: further lines of its `gateway` section.
pub(crate) fn gateway_behind(connector: &ConnectorFixture, more: &str) -> ProgramFixture {
    let relay = format!(
        "gateway:\n  relay_url: http://{}\n  relay_platforms: [telegram]\n  relay_id: gw\n  relay_secret: {}\n  \
         relay_reconnect_base: 0.05\n{more}",
        connector.address.expect("it listens"),
        connector.secret
    );
    ProgramFixture::builder().with(&relay).build()
}

const SLEEPY: &str = "  scale_to_zero:\n    enabled: true\n    action: exit\n    \
                      idle_timeout_minutes: 0.005\n    tick_seconds: 0.1\n";

/// Sleep and wake cycles: six, or `PETASOS_RELAY_ROUNDS`.
fn rounds() -> u64 {
    std::env::var("PETASOS_RELAY_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(6)
}

/// Acts as a simple host: starts the gateway when its wake URL is called, unless it still runs.
fn start_when_woken(
    gateway: &mut ProgramFixture,
    wake_server: &WakeServer,
    received: &mut usize,
    starts: &mut u64,
) {
    let calls = wake_server.calls().len();
    if gateway.has_exited() && calls > *received {
        gateway.launch();
        *starts += 1;
    }
    *received = calls;
}

#[test]
fn message_at_any_moment_of_falling_asleep_is_answered() {
    let wake_server = WakeServer::start().expect("a server");
    let mut connector = ConnectorFixture::with_config(Some(&wake_server), "wake_cooldown: 60");
    connector.start();
    // The connector has an old wake URL until the gateway connects.
    let own = format!("http://{}/moved", wake_server.address());
    let mut gateway = gateway_behind(&connector, &format!("  relay_wake_url: {own}\n{SLEEPY}"));
    let mut received = 0;
    let mut starts = 0;
    for round in 0..rounds() {
        if round % 3 == 0 {
            eventually("it has exited by itself", || gateway.has_exited());
        } else {
            // At a different moment of falling asleep in each round; it is idle after 300 ms.
            let _ = wait::poll(Duration::from_millis(250 + round * 37 % 300), || false);
        }
        connector.telegram.push_text(USER, USER, format!("question {round}."));
        let want = format!("echo: question {round}.");
        eventually("it is answered", || {
            start_when_woken(&mut gateway, &wake_server, &mut received, &mut starts);
            connector.telegram.texts(USER).contains(&want)
        });
    }
    let texts = connector.telegram.texts(USER);
    let want: Vec<_> = (0..rounds()).map(|round| format!("echo: question {round}.")).collect();
    assert_eq!(texts, want, "lost, duplicated or out of order");
    assert!(starts >= rounds().div_ceil(3), "{starts} starts");
    let called: Vec<_> = wake_server.calls().into_iter().map(|call| call.path).collect();
    assert!(called[0].starts_with("/wake") && called[1..].iter().all(|path| path == "/moved"), "{called:?}");
    eventually("it has exited by itself", || gateway.has_exited());
    assert_eq!(connector.queued(), 0);
}

#[test]
fn sleeping_gateway_is_woken_answers_and_sleeps_again() {
    let wake_server = WakeServer::start().expect("a server");
    let mut connector = ConnectorFixture::new(Some(&wake_server));
    connector.start();
    let mut gateway = gateway_behind(&connector, "");
    for round in 0..3 {
        let calls = wake_server.calls().len();
        let text = format!("question {round}");
        connector.telegram.push_text(USER, USER, text.as_str());
        assert!(wake_server.wait_for(calls + 1, SOON), "not woken in round {round}");
        gateway.launch();
        let want = format!("echo: {text}");
        let answered =
            connector.telegram.wait_until(SOON, |state| state.texts(USER).contains(&want).then_some(()));
        assert!(answered.is_some(), "round {round}: {:?} {}", connector.telegram.texts(USER), gateway.kill());
        eventually("the queue is empty", || connector.queued() == 0);
        let (_, log, _) = gateway.terminate();
        assert!(log.contains("granted=true"), "{log}");
        eventually("it sleeps", || connector.status()["instances"][0]["mode"] == "idle");
    }
    let texts = connector.telegram.texts(USER);
    for round in 0..3 {
        let count = texts.iter().filter(|text| text.contains(&format!("question {round}"))).count();
        assert_eq!(count, 1, "{texts:?}");
    }
}

#[test]
fn connector_commands_manage_gateways_and_tenants() {
    let connector = ConnectorFixture::new(None);
    let home: &Path = connector.home.path();
    let run = |args: &[&str]| petasos(home, args).output().expect("petasos runs");
    let token = crate::support::expect_json(&run(&["connector", "enroll-token", "--tenant", "me", "--json"]));
    assert_eq!(token["enrollmentToken"].as_str().map(str::len), Some(64));
    crate::support::expect_failure(&run(&["connector", "enroll-token", "--tenant", "unknown"]), 1);
    crate::support::expect_failure(
        &run(&["connector", "gateway", "add", "gw", "--tenant", "me", "--instance", "mine"]),
        1,
    );
    let rotated = crate::support::expect_json(&run(&["connector", "gateway", "rotate", "gw", "--json"]));
    assert_ne!(rotated["secret"], connector.secret.as_str());
    expect_success(&run(&["connector", "bind", "telegram", "7", "--instance", "mine"]));
    crate::support::expect_failure(&run(&["connector", "bind", "telegram", "7", "--instance", "another"]), 1);
    expect_success(&run(&["connector", "gateway", "revoke", "gw"]));
    let listed = crate::support::expect_json(&run(&["connector", "gateway", "list", "--json"]));
    assert_eq!(listed["gateways"][0]["revoked"], true);
    let tenants = crate::support::expect_json(&run(&["connector", "tenant", "list", "--json"]));
    assert_eq!(tenants["tenants"], json!(["me"]));
    assert_eq!(connector.status()["running"], false);
}
