//! The real connector between a fake Telegram and gateways that come and go: killed, asleep, woken.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use petasos_fakes::Telegram;
use petasos_fakes::relay::{Acks, Alarm, Peer, fresh_token};
use petasos_fakes::telegram::Incoming;
use serde_json::{Value, json};
use support::{Bench, SOON, fine, petasos};
use tempfile::TempDir;

const ANN: i64 = 7;

/// A connector of its own home, with one agent to which everybody may talk.
struct Front {
    telegram: Telegram,
    home: TempDir,
    child: Option<Child>,
    address: Option<SocketAddr>,
    secret: String,
}

impl Front {
    fn new(wake: Option<&Alarm>) -> Self {
        let telegram = Telegram::start().expect("a fake");
        let home = TempDir::new().expect("a home");
        let hosts = wake.map(|alarm| alarm.address().to_string()).unwrap_or_default();
        let config = format!(
            "connector:\n  listen: 127.0.0.1:0\n  single_instance: mine\n  wake_cooldown: 0.01\n  wake_hosts: [{hosts:?}]\n  \
             platforms:\n    telegram:\n      token: \"123:abc\"\n      extra:\n        base_url: {}/bot\n        \
             poll_backoff_base: 0.05\n",
            telegram.url()
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("a configuration");
        let said = |args: &[&str]| fine(&petasos(home.path(), args).output().expect("petasos runs"));
        said(&["connector", "tenant", "add", "me"]);
        let url = wake.map(Alarm::url).unwrap_or_default();
        let mut add =
            vec!["connector", "gateway", "add", "gw", "--tenant", "me", "--instance", "mine", "--json"];
        if wake.is_some() {
            add.extend(["--wake-url", url.as_str()]);
        }
        let added: Value = serde_json::from_str(&said(&add)).expect("JSON");
        assert_eq!(added["gatewayId"], "gw");
        let secret = added["secret"].as_str().expect("a secret").to_owned();
        Self { telegram, home, child: None, address: None, secret }
    }

    fn start(&mut self) {
        let mut command = petasos(self.home.path(), &["connector", "run", "--quiet"]);
        if let Some(address) = self.address {
            command.args(["--listen", &address.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("petasos starts");
        let out = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.parse();
        self.address = Some(address.expect("an address"));
        self.child = Some(child);
    }

    /// As the kernel would.
    fn kill(&mut self) {
        let mut child = self.child.take().expect("running");
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    fn dial(&self, acks: Acks) -> Option<Peer> {
        let bearer = fresh_token("gw", &self.secret);
        let peer = Peer::dial(self.address.expect("started once"), Some(&bearer), acks).ok()?;
        peer.hello("telegram", "123");
        Some(peer)
    }

    fn status(&self) -> Value {
        support::json(
            &petasos(self.home.path(), &["connector", "status", "--json"]).output().expect("petasos runs"),
        )
    }

    fn waiting(&self) -> u64 {
        self.status()["instances"][0]["entries"].as_u64().expect("a number")
    }

    fn calls(&self) -> u64 {
        self.telegram.look(|world| world.call_count())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Every number that came, with what came under it.
fn gather(got: &mut BTreeMap<String, HashSet<String>>, peer: &Peer) {
    peer.look(|heard| {
        for frame in heard.of_type("inbound") {
            let (number, text) = (frame["bufferId"].as_str(), frame["event"]["text"].as_str());
            let (number, text) = (number.expect("a number").to_owned(), text.expect("a text").to_owned());
            got.entry(text).or_default().insert(number);
        }
    });
}

#[test]
fn killed_at_whatever_step_a_connector_loses_nothing_and_gives_nothing_two_numbers() {
    let mut front = Front::new(None);
    let (mut got, mut said) = (BTreeMap::new(), 0);
    for round in 0..40_u64 {
        front.start();
        let peer = front.dial(Acks::All).expect("it listens");
        let texts: Vec<_> =
            (said..said + 5).map(|number| Incoming::text(ANN, ANN, number.to_string())).collect();
        said += 5;
        front.telegram.push_many(texts);
        // So many steps can be seen from outside: what Telegram is asked, and what the gateway hears.
        let (before, steps) = (front.calls(), 1 + round % 14);
        until("so many steps", || {
            let heard = peer.look(|heard| heard.frames.len()) as u64;
            let everything = heard > 5 && front.telegram.pending_updates() == 0;
            front.calls() - before + heard >= steps || everything
        });
        front.kill();
        peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut off");
        gather(&mut got, &peer);
    }
    front.start();
    let last = front.dial(Acks::All).expect("it listens");
    until("everything has come", || {
        gather(&mut got, &last);
        got.len() == said && front.telegram.pending_updates() == 0
    });
    until("nothing is owed any more", || front.waiting() == 0);
    gather(&mut got, &last);
    let twice: Vec<_> = got.iter().filter(|(_, numbers)| numbers.len() > 1).collect();
    assert!(twice.is_empty(), "taken twice: {twice:?}");
    assert_eq!(got.len(), said);
}

#[test]
fn a_hundred_times_asleep_woken_answering_and_asleep_again() {
    let alarm = Alarm::start().expect("a server");
    let mut front = Front::new(Some(&alarm));
    front.start();
    for round in 0..100 {
        let calls = alarm.calls().len();
        front.telegram.push_text(ANN, ANN, format!("question {round}"));
        assert!(alarm.wait_for(calls + 1, SOON), "woken in round {round}");
        let peer = front.dial(Acks::All).expect("it listens");
        let question = peer.wait_until(SOON, |heard| heard.texts().first().cloned());
        assert_eq!(question, Some(format!("question {round}")));
        let answer = format!("answer {round}");
        let send = json!({"op": "send", "chat_id": "7", "content": answer, "reply_to": null, "metadata": {}});
        peer.outbound(&format!("r{round}"), &send);
        assert_eq!(peer.answer(&format!("r{round}"), SOON).expect("an answer")["success"], true);
        peer.going_idle();
        let granted = peer.wait_until(SOON, |heard| heard.of_type("going_idle_ack").next().map(|_| ()));
        granted.expect("granted");
        assert_eq!(peer.look(|heard| heard.texts().len()), 1, "in round {round}");
    }
    let want: Vec<_> = (0..100).map(|round| format!("answer {round}")).collect();
    assert_eq!(front.telegram.texts(ANN), want);
    assert_eq!(front.waiting(), 0);
}

#[test]
fn a_real_gateway_that_sleeps_is_woken_answers_and_sleeps_again() {
    let alarm = Alarm::start().expect("a server");
    let mut front = Front::new(Some(&alarm));
    front.start();
    let relay = format!(
        "gateway:\n  relay_url: http://{}\n  relay_platforms: [telegram]\n  relay_id: gw\n  relay_secret: {}\n  relay_reconnect_base: 0.05\n",
        front.address.expect("it listens"),
        front.secret
    );
    let mut bench = Bench::setup().with(&relay).build();
    for round in 0..3 {
        let calls = alarm.calls().len();
        let text = format!("question {round}");
        front.telegram.push_text(ANN, ANN, text.as_str());
        assert!(alarm.wait_for(calls + 1, SOON), "woken in round {round}");
        bench.launch();
        let want = format!("echo: {text}");
        let answered =
            front.telegram.wait_until(SOON, |world| world.texts(ANN).contains(&want).then_some(()));
        assert!(answered.is_some(), "round {round}: {:?} {}", front.telegram.texts(ANN), bench.kill());
        until("nothing is owed any more", || front.waiting() == 0);
        let (_, said, _) = bench.terminate();
        assert!(said.contains("granted=true"), "{said}");
        until("it sleeps", || front.status()["instances"][0]["mode"] == "idle");
    }
    let texts = front.telegram.texts(ANN);
    for round in 0..3 {
        let count = texts.iter().filter(|text| text.contains(&format!("question {round}"))).count();
        assert_eq!(count, 1, "{texts:?}");
    }
}

#[test]
fn the_commands_make_and_unmake_what_gateways_need() {
    let front = Front::new(None);
    let home: &Path = front.home.path();
    let run = |args: &[&str]| petasos(home, args).output().expect("petasos runs");
    let token = support::json(&run(&["connector", "enroll-token", "--tenant", "me", "--json"]));
    assert_eq!(token["enrollmentToken"].as_str().map(str::len), Some(64));
    support::failed(&run(&["connector", "enroll-token", "--tenant", "nobody"]), 1);
    support::failed(&run(&["connector", "gateway", "add", "gw", "--tenant", "me", "--instance", "mine"]), 1);
    let rotated = support::json(&run(&["connector", "gateway", "rotate", "gw", "--json"]));
    assert_ne!(rotated["secret"], front.secret.as_str());
    fine(&run(&["connector", "bind", "telegram", "7", "--instance", "mine"]));
    support::failed(&run(&["connector", "bind", "telegram", "7", "--instance", "another"]), 1);
    fine(&run(&["connector", "gateway", "revoke", "gw"]));
    let listed = support::json(&run(&["connector", "gateway", "list", "--json"]));
    assert_eq!(listed["gateways"][0]["revoked"], true);
    let tenants = support::json(&run(&["connector", "tenant", "list", "--json"]));
    assert_eq!(tenants["tenants"], json!(["me"]));
    assert_eq!(front.status()["running"], false);
}
