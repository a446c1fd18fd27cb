//! The real connector between a fake Telegram and gateways that come and go: killed, asleep, woken.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::outside::{OutsideClient, kills};
use crate::support::{Bench, SOON, eventually, fine, petasos};
use petasos_fakes::Telegram;
use petasos_fakes::relay::{Acks, Alarm, Peer, fresh_token};
use petasos_fakes::telegram::{Fault, Incoming};
use serde_json::{Value, json};
use tempfile::TempDir;

const ANN: i64 = 7;
const MARK: &str = "Recovered reply";

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
        Self::with(wake, "wake_cooldown: 0.01")
    }

    /// `more`: one more line of its configuration.
    fn with(wake: Option<&Alarm>, more: &str) -> Self {
        let telegram = Telegram::start().expect("a fake");
        let home = TempDir::new().expect("a home");
        let hosts = wake.map(|alarm| alarm.address().to_string()).unwrap_or_default();
        let config = format!(
            "connector:\n  listen: 127.0.0.1:0\n  single_instance: mine\n  {more}\n  wake_hosts: [{hosts:?}]\n  \
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
        assert!(self.start_with(&[]), "it ended before it listened");
    }

    /// `false`: it died before it listened.
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

    fn is_dead(&mut self) -> bool {
        let ended = self.child.as_mut().is_none_or(|child| child.try_wait().expect("a child").is_some());
        if ended {
            self.child = None;
        }
        ended
    }

    /// As the kernel would.
    fn kill(&mut self) {
        let mut child = self.child.take().expect("running");
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    /// As a supervisor would.
    fn terminate(&mut self) {
        let mut child = self.child.take().expect("running");
        let sent = std::process::Command::new("kill").arg(child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        child.wait().expect("gone");
    }

    fn dial(&self, acks: Acks) -> Option<Peer> {
        let bearer = fresh_token("gw", &self.secret);
        let peer = Peer::dial(self.address.expect("started once"), Some(&bearer), acks).ok()?;
        peer.hello("telegram", "123");
        Some(peer)
    }

    fn status(&self) -> Value {
        crate::support::json(
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

/// A last gateway takes everything: each message arrives, under one number.
fn all_arrive_once(front: &Front, got: &mut BTreeMap<String, HashSet<String>>, said: usize) {
    let last = front.dial(Acks::All).expect("it listens");
    eventually("everything has come", || {
        gather(got, &last);
        got.len() == said && front.telegram.pending_updates() == 0
    });
    eventually("the queue is empty", || front.waiting() == 0);
    gather(got, &last);
    let twice: Vec<_> = got.iter().filter(|(_, numbers)| numbers.len() > 1).collect();
    assert!(twice.is_empty(), "delivered under two numbers: {twice:?}");
    assert_eq!(got.len(), said);
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
        eventually("so many steps", || {
            let heard = peer.look(|heard| heard.frames.len()) as u64;
            let everything = heard > 5 && front.telegram.pending_updates() == 0;
            front.calls() - before + heard >= steps || everything
        });
        front.kill();
        peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut off");
        gather(&mut got, &peer);
    }
    front.start();
    all_arrive_once(&front, &mut got, said);
}

#[test]
fn killed_connector_keeps_the_rate_limit_of_a_chat() {
    const BAN: Duration = Duration::from_secs(8);
    let mut front = Front::new(None);
    front.telegram.on("sendMessage").does(Fault::too_many(BAN.as_secs()));
    front.start();
    front.telegram.push_text(ANN, ANN, "hello");
    let action =
        json!({"op": "send", "chat_id": ANN.to_string(), "content": "yes", "reply_to": null, "metadata": {}});
    let send = |peer: &Peer, number: &str| {
        peer.outbound(number, &action);
        peer.answer(number, SOON).expect("an answer")["success"] == true
    };
    let peer = front.dial(Acks::All).expect("it listens");
    assert!(
        peer.wait_until(SOON, |heard| (!heard.texts().is_empty()).then_some(())).is_some(),
        "the chat is known"
    );
    assert!(!send(&peer, "refused"));
    let refused = front.telegram.calls_of("sendMessage")[0].at;
    eventually("stored", || front.status()["rate_limits"][0]["name"] == "7");
    front.kill();
    front.start();
    let shown = fine(&petasos(front.home.path(), &["connector", "status"]).output().expect("petasos runs"));
    assert!(shown.contains("telegram:7 is rate limited until"), "{shown}");
    let peer = front.dial(Acks::All).expect("it listens");
    let mut tries = 0;
    eventually("sent", || {
        tries += 1;
        send(&peer, &format!("try {tries}"))
    });
    let sent: Vec<_> = front.telegram.calls_of("sendMessage").iter().map(|call| call.at - refused).collect();
    assert!(tries > 1 && sent.len() == 2, "{tries} tries, {sent:?}");
    // The platform's clock and ours begin to count a moment apart.
    assert!(sent[1] + Duration::from_millis(50) >= BAN, "{sent:?}");
    eventually("the row is deleted", || front.status()["rate_limits"] == json!([]));
}

#[test]
fn kills_lose_nothing_while_another_program_opens_and_closes_its_database() {
    let mut front = Front::new(None);
    front.start();
    let client = OutsideClient::start(&front.home.path().join("connector.db"), "queue");
    let (mut got, mut said) = (BTreeMap::new(), 0);
    for round in 0..kills() {
        let peer = front.dial(Acks::All).expect("it listens");
        client.finish_a_round();
        front
            .telegram
            .push_many((said..said + 10).map(|number| Incoming::text(ANN, ANN, number.to_string())));
        said += 10;
        // Killed after none, some or all of them came through.
        let enough = usize::try_from(round * 3 % 11).expect("a count");
        eventually("so many messages", || peer.look(|heard| heard.texts().len()) >= enough);
        client.finish_a_round();
        front.kill();
        peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut off");
        gather(&mut got, &peer);
        front.start();
    }
    all_arrive_once(&front, &mut got, said);
}

#[test]
fn connector_recovers_removed_files() {
    let mut front = Front::new(None);
    front.start();
    let peer = front.dial(Acks::All).expect("it listens");
    front.telegram.push_text(ANN, ANN, "before");
    eventually("it comes", || peer.look(|heard| heard.texts().contains(&"before".to_owned())));
    std::fs::remove_file(front.home.path().join("connector.db-wal")).expect("removed");
    front.telegram.push_text(ANN, ANN, "after");
    eventually("it comes", || peer.look(|heard| heard.texts().contains(&"after".to_owned())));
    eventually("the status tells", || front.status()["store_recoveries"] == 1);
    eventually("nothing is owed any more", || front.waiting() == 0);
    front.kill();
    front.start();
    let again = front.dial(Acks::All).expect("it listens");
    front.telegram.push_text(ANN, ANN, "last");
    eventually("it comes", || again.look(|heard| heard.texts().contains(&"last".to_owned())));
    assert_eq!(again.look(|heard| heard.texts().len()), 1, "nothing comes twice");
}

#[test]
fn shows_damage_of_its_database_and_leaves_no_note() {
    let mut front = Front::new(None);
    front.start();
    front.telegram.push_text(ANN, ANN, "before");
    eventually("it is queued", || front.waiting() == 1);
    let path = front.home.path().join("connector.db");
    let raw = rusqlite::Connection::open(&path).expect("a database");
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folded");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'seen'";
    let root: u32 = raw.query_row(root, [], |row| row.get(0)).expect("a table");
    raw.close().expect("closed");
    // Writes in place: the connector keeps its file.
    let file = std::fs::File::options().write(true).open(&path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 100], u64::from(root - 1) * 4096)
        .expect("written");
    front.telegram.push_text(ANN, ANN, "after");
    eventually("the status tells", || {
        let status = front.status();
        status["store_trouble"].as_str().is_some_and(|it| it.contains("restore connector.db from a backup"))
    });
    front.terminate();
    let left: Vec<_> = ["-damaged", "-unreadable-rows"]
        .into_iter()
        .filter(|suffix| front.home.path().join(format!("connector.db{suffix}")).exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn stop_right_after_the_log_was_removed_loses_nothing() {
    for copy_is_possible in [true, false] {
        let mut front = Front::new(None);
        front.start();
        front.telegram.push_text(ANN, ANN, "kept");
        eventually("it is queued", || front.waiting() == 1);
        if !copy_is_possible {
            std::fs::create_dir(front.home.path().join("connector.db-recovery~")).expect("a directory");
        }
        // The idle check comes every two seconds; the stop comes first.
        std::fs::remove_file(front.home.path().join("connector.db-wal")).expect("removed");
        front.terminate();
        front.start();
        let peer = front.dial(Acks::All).expect("it listens");
        eventually("it comes", || peer.look(|heard| heard.texts() == ["kept"]));
    }
}

/// What one life of a connector is given to do: two messages, one answer, and a gateway that leaves. `true`: all of it.
fn one_life(front: &mut Front, round: usize, got: &mut BTreeMap<String, HashSet<String>>) -> bool {
    let Some(peer) = front.dial(Acks::All) else { return false };
    let seen = |peer: &Peer, front: &mut Front, done: &dyn Fn(&petasos_fakes::relay::Heard) -> bool| {
        let end = Instant::now() + SOON;
        while !peer.look(|heard| done(heard)) {
            if front.is_dead() {
                return false;
            }
            assert!(Instant::now() < end, "neither done nor dead in round {round}");
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    };
    let all = seen(&peer, front, &|heard| (0..2).all(|at| heard.texts().contains(&format!("{round}-{at}"))));
    let answered = all && {
        peer.outbound(&format!("r{round}"), &answering(round));
        seen(&peer, front, &|heard| heard.of_type("outbound_result").next().is_some())
    };
    let idle = answered && {
        peer.going_idle();
        seen(&peer, front, &|heard| heard.of_type("going_idle_ack").next().is_some())
    };
    gather(got, &peer);
    idle
}

fn answering(round: usize) -> Value {
    json!({"op": "send", "chat_id": "7", "content": format!("answer {round}."), "reply_to": null, "metadata": {}})
}

#[test]
fn killed_at_every_commit_a_connector_loses_nothing_and_does_nothing_twice() {
    let mut front = Front::new(None);
    let (mut got, mut rounds) = (BTreeMap::new(), 0);
    for side in ["Before", "After"] {
        for number in 1.. {
            let place = format!("Connector:{side}:{number}");
            let texts = (0..2).map(|at| Incoming::text(ANN, ANN, format!("{rounds}-{at}")));
            front.telegram.push_many(texts);
            let up = front.start_with(&[("PETASOS_DIE_AT", &place)]);
            if up && one_life(&mut front, rounds, &mut got) {
                front.kill();
                assert!(number > 5, "{number} commits, and there are more than that in one life");
                rounds += 1;
                break;
            }
            // Whatever it died of, the next one goes on; the same request is answered, or its fate is unknown.
            front.start();
            let peer = front.dial(Acks::All).expect("it listens");
            peer.outbound(&format!("r{rounds}"), &answering(rounds));
            let answer = peer.answer(&format!("r{rounds}"), SOON).expect("an answer");
            let text = format!("answer {rounds}.");
            let shown = front.telegram.texts(ANN).iter().filter(|it| **it == text).count();
            let known = answer["success"] == true && shown == 1;
            let unknown = answer["ambiguous"] == true && shown <= 1;
            assert!(known || unknown, "{place}: {shown} shown, {answer}");
            eventually("both have come", || {
                gather(&mut got, &peer);
                (0..2).all(|at| got.contains_key(&format!("{rounds}-{at}")))
            });
            front.kill();
            rounds += 1;
        }
    }
    front.start();
    let last = front.dial(Acks::All).expect("it listens");
    eventually("nothing is owed any more", || front.waiting() == 0);
    gather(&mut got, &last);
    let twice: Vec<_> = got.iter().filter(|(_, numbers)| numbers.len() > 1).collect();
    assert!(twice.is_empty(), "taken twice: {twice:?}");
    assert_eq!(got.len(), rounds * 2);
}

#[test]
fn killed_while_it_sends_it_leaves_at_most_a_marked_copy_and_nobody_waits_behind_it() {
    // It was seen, or nobody has seen it: whoever was killed cannot tell.
    for fault in [Fault::HangAfter, Fault::Hang] {
        let mut front = Front::new(None);
        front.start();
        let mut bench = behind(&front, "");
        bench.launch();
        front.telegram.on("sendMessage").does(fault);
        front.telegram.push_text(ANN, ANN, "one");
        eventually("it is being sent", || front.telegram.calls_of("sendMessage").len() == 1);
        front.kill();
        front.telegram.clear_faults();
        front.start();
        front.telegram.push_text(ANN, ANN, "two");
        let answered = |want: &str| {
            let all = front.telegram.texts(ANN);
            all.iter().filter(|text| text.contains(want)).cloned().collect::<Vec<_>>()
        };
        let both = front.telegram.wait_until(Duration::from_secs(60), |world| {
            let texts = world.texts(ANN);
            let marked = texts.iter().any(|it| it.contains(MARK) && it.contains("echo: one"));
            (marked && texts.iter().any(|it| it == "echo: two")).then_some(())
        });
        assert!(both.is_some(), "{:?} {}", front.telegram.texts(ANN), bench.kill());
        let (one, two) = (answered("echo: one"), answered("echo: two"));
        assert_eq!(one.iter().filter(|it| it.contains(MARK)).count(), 1, "{one:?}");
        assert!(one.len() <= 2 && two.len() == 1, "{one:?} {two:?}");
    }
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

/// A gateway behind this connector. `more`: of its `gateway` section.
fn behind(front: &Front, more: &str) -> Bench {
    let relay = format!(
        "gateway:\n  relay_url: http://{}\n  relay_platforms: [telegram]\n  relay_id: gw\n  relay_secret: {}\n  \
         relay_reconnect_base: 0.05\n{more}",
        front.address.expect("it listens"),
        front.secret
    );
    Bench::setup().with(&relay).build()
}

const SLEEPY: &str = "  scale_to_zero:\n    enabled: true\n    action: exit\n    \
                      idle_timeout_minutes: 0.005\n    tick_seconds: 0.1\n";

/// Rounds of falling asleep and being woken: six, or as many as `PETASOS_RELAY_ROUNDS` says.
fn rounds() -> u64 {
    std::env::var("PETASOS_RELAY_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(6)
}

/// As a simple host does it: starts the gateway when its address is called, unless it still runs.
fn attend(bench: &mut Bench, alarm: &Alarm, heard: &mut usize, starts: &mut u64) {
    let calls = alarm.calls().len();
    if bench.has_ended() && calls > *heard {
        bench.launch();
        *starts += 1;
    }
    *heard = calls;
}

#[test]
fn a_gateway_that_falls_asleep_by_itself_misses_nothing_whenever_it_comes() {
    let alarm = Alarm::start().expect("a server");
    let mut front = Front::with(Some(&alarm), "wake_cooldown: 60");
    front.start();
    // Its address at the connector is an old one until it has been there.
    let own = format!("http://{}/moved", alarm.address());
    let mut bench = behind(&front, &format!("  relay_wake_url: {own}\n{SLEEPY}"));
    let (mut heard, mut starts) = (0, 0);
    for round in 0..rounds() {
        if round % 3 == 0 {
            eventually("it has ended by itself", || bench.has_ended());
        } else {
            // At any moment of its falling asleep: idle for 300 ms, and then a little.
            std::thread::sleep(Duration::from_millis(250 + round * 37 % 300));
        }
        front.telegram.push_text(ANN, ANN, format!("question {round}."));
        let want = format!("echo: question {round}.");
        eventually("it is answered", || {
            attend(&mut bench, &alarm, &mut heard, &mut starts);
            front.telegram.texts(ANN).contains(&want)
        });
    }
    let texts = front.telegram.texts(ANN);
    let want: Vec<_> = (0..rounds()).map(|round| format!("echo: question {round}.")).collect();
    assert_eq!(texts, want, "none lost, none doubled, in order");
    assert!(starts >= rounds().div_ceil(3), "{starts} starts");
    let called: Vec<_> = alarm.calls().into_iter().map(|call| call.path).collect();
    assert!(called[0].starts_with("/wake") && called[1..].iter().all(|path| path == "/moved"), "{called:?}");
    eventually("it has ended by itself", || bench.has_ended());
    assert_eq!(front.waiting(), 0);
}

#[test]
fn a_real_gateway_that_sleeps_is_woken_answers_and_sleeps_again() {
    let alarm = Alarm::start().expect("a server");
    let mut front = Front::new(Some(&alarm));
    front.start();
    let mut bench = behind(&front, "");
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
        eventually("nothing is owed any more", || front.waiting() == 0);
        let (_, said, _) = bench.terminate();
        assert!(said.contains("granted=true"), "{said}");
        eventually("it sleeps", || front.status()["instances"][0]["mode"] == "idle");
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
    let token = crate::support::json(&run(&["connector", "enroll-token", "--tenant", "me", "--json"]));
    assert_eq!(token["enrollmentToken"].as_str().map(str::len), Some(64));
    crate::support::failed(&run(&["connector", "enroll-token", "--tenant", "nobody"]), 1);
    crate::support::failed(
        &run(&["connector", "gateway", "add", "gw", "--tenant", "me", "--instance", "mine"]),
        1,
    );
    let rotated = crate::support::json(&run(&["connector", "gateway", "rotate", "gw", "--json"]));
    assert_ne!(rotated["secret"], front.secret.as_str());
    fine(&run(&["connector", "bind", "telegram", "7", "--instance", "mine"]));
    crate::support::failed(&run(&["connector", "bind", "telegram", "7", "--instance", "another"]), 1);
    fine(&run(&["connector", "gateway", "revoke", "gw"]));
    let listed = crate::support::json(&run(&["connector", "gateway", "list", "--json"]));
    assert_eq!(listed["gateways"][0]["revoked"], true);
    let tenants = crate::support::json(&run(&["connector", "tenant", "list", "--json"]));
    assert_eq!(tenants["tenants"], json!(["me"]));
    assert_eq!(front.status()["running"], false);
}
