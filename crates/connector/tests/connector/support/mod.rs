//! A connector in this process: real store and sockets, fake Telegram, scripted gateways on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use petasos_connector::{Config, DATABASE, StopCause};
use petasos_core::access::Access;
use petasos_core::{Millis, Platform};
use petasos_fakes::hooks::{WebhookDelivery, WebhookResponse};
use petasos_fakes::relay::{Acks, Peer, fresh_token};
use petasos_fakes::{Discord, Telegram, wait};
use petasos_platforms::listener::ListenAddress;
use petasos_platforms::{Adapter, Secret, discord, telegram};
use petasos_store::connector::QueueDepth;
use petasos_store::{Reader, Store, Tx};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const SOON: Duration = Duration::from_secs(60);
pub const BOT: &str = "123";
/// The author in the tests.
pub const ANN: i64 = 7;

pub fn platform(name: &str) -> Platform {
    Platform::parse(name).expect("known")
}

pub fn discord_at(fake: &Discord) -> Adapter {
    // Begins with 900, the fake bot's id, in base 64.
    let mut config = discord::Config::new(Secret::new("OTAw.x.secret"));
    config.api_base = fake.api_base();
    config.identify_gap = Duration::ZERO;
    config.auto_thread = false;
    config.require_mention = false;
    Adapter::Discord(discord::Discord::new(config).expect("valid"))
}

/// A home and its fakes; connectors can be restarted.
pub struct Bench {
    pub telegram: Telegram,
    pub home: TempDir,
    running: Option<Running>,
    port: u16,
}

struct Running {
    runtime: Runtime,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<StopCause>,
}

impl Bench {
    /// With a single instance `i1`; its gateway is `gw-1`.
    pub fn single() -> (Self, String) {
        Self::single_with(|_| {})
    }

    pub fn single_with(change: impl Fn(&mut Config)) -> (Self, String) {
        let mut bench = Self::idle();
        let secret = bench.add_gateway("gw-1", "t1", "i1", None);
        bench.start(|config| {
            config.single_instance = Some("i1".into());
            config.access = Access { allow_all: true, ..Access::default() };
            change(config);
        });
        (bench, secret)
    }

    pub fn idle() -> Self {
        let telegram = Telegram::start().expect("fake telegram");
        Self { telegram, home: TempDir::new().expect("a home"), running: None, port: 0 }
    }

    pub fn start(&mut self, change: impl Fn(&mut Config)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut platform = telegram::Config::new(Secret::new("123:abc"));
        platform.base_url = format!("{}/bot", self.telegram.url());
        platform.poll_backoff_base = Duration::from_millis(50);
        let mut config = Config::new(self.home.path());
        config.listen =
            ListenAddress { host: "127.0.0.1".into(), port: self.port, port_key: "connector.listen" };
        config.adapters = vec![Adapter::Telegram(telegram::Telegram::new(platform).expect("an adapter"))];
        change(&mut config);
        let running = runtime.block_on(petasos_connector::start(config)).expect("the connector starts");
        let address = running.address();
        self.port = address.port();
        let (stop, stopped) = oneshot::channel();
        let ended = runtime.spawn(running.wait(async {
            let _ = stopped.await;
        }));
        self.running = Some(Running { runtime, address, stop, ended });
    }

    pub fn stop(&mut self) {
        let Running { runtime, stop, ended, .. } = self.running.take().expect("running");
        stop.send(()).expect("it waits for that");
        assert_eq!(runtime.block_on(ended).expect("no panic"), StopCause::Requested);
        runtime.shutdown_timeout(SOON);
    }

    pub fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("running").address
    }

    pub fn write<T>(&self, job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>) -> T {
        let mut store = Store::open_connector(self.home.path().join(DATABASE)).expect("a store");
        let done = store.write(job).expect("a commit");
        store.close().expect("closed");
        done
    }

    pub fn refused<T: std::fmt::Debug>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>,
    ) -> petasos_store::Error {
        let mut store = Store::open_connector(self.home.path().join(DATABASE)).expect("a store");
        let refused = store.write(job).expect_err("it is refused");
        store.close().expect("closed");
        refused
    }

    pub fn read<T>(&self, question: impl FnOnce(&Reader) -> petasos_store::Result<T>) -> T {
        let reader = Reader::open_connector(self.home.path().join(DATABASE)).expect("a store");
        reader.snapshot(question).expect("an answer")
    }

    /// Returns its secret.
    pub fn add_gateway(&self, id: &str, tenant: &str, instance: &str, wake: Option<&str>) -> String {
        let now = Millis(1);
        let tenant = tenant.into();
        let instance = instance.into();
        let gateway = self.write(|tx| {
            tx.add_tenant(&tenant, now)?;
            tx.ensure_instance(&instance, &tenant, now)?;
            tx.put_wake_url(&instance, wake)?;
            tx.add_gateway(&id.into(), &instance, now)
        });
        gateway.secrets.into_iter().next().expect("a secret")
    }

    pub fn depth(&self, instance: &str) -> QueueDepth {
        let depths = self.read(|reader| reader.depths());
        depths.into_iter().find(|depth| depth.instance.as_str() == instance).expect("an instance")
    }

    /// A socket before its hello.
    pub fn dial(&self, gateway: &str, secret: &str, acks: Acks) -> Peer {
        Peer::dial(self.address(), Some(&fresh_token(gateway, secret)), acks).expect("a socket")
    }

    /// A socket with its descriptor.
    pub fn greet(&self, gateway: &str, secret: &str, acks: Acks) -> Peer {
        let peer = self.dial(gateway, secret, acks);
        peer.hello("telegram", BOT);
        let greeted = peer.wait_until(SOON, |heard| heard.of_type("descriptor").next().map(|_| ()));
        greeted.expect("a descriptor");
        peer
    }

    pub fn write_message(&self, text: impl Into<String>) {
        self.telegram.push_text(ANN, ANN, text);
    }

    /// Waits until all messages are on disk and confirmed to the platform.
    pub fn wait_taken(&self) {
        let taken = self.telegram.wait_until(SOON, |world| (world.pending_updates() == 0).then_some(()));
        taken.expect("Telegram is told that we have it");
    }

    pub fn wait_depth(&self, instance: &str, entries: u64) {
        until("that many entries wait", || self.depth(instance).entries == entries);
    }

    pub fn post(&self, path: &str, bearer: Option<&str>, body: &Value) -> WebhookResponse {
        let mut delivery = WebhookDelivery::json(path, body);
        if let Some(bearer) = bearer {
            delivery = delivery.header("Authorization", format!("Bearer {bearer}"));
        }
        delivery.post(self.address().port()).expect("an answer")
    }
}

/// Downloads a file.
pub fn get(address: SocketAddr, path: &str, bearer: Option<&str>) -> WebhookResponse {
    let shown = bearer.map(|bearer| format!("Authorization: Bearer {bearer}\r\n")).unwrap_or_default();
    let mut stream = begin(address, &format!("GET {path} HTTP/1.1\r\nHost: connector\r\n{shown}\r\n"));
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    WebhookResponse { status, text }
}

/// A connection that sent these bytes, perhaps an incomplete request.
pub fn begin(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    stream.write_all(said.as_bytes()).expect("it is heard");
    stream
}

/// The JSON of a response.
pub fn body(reply: &WebhookResponse) -> Value {
    let (_, body) = reply.text.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).expect("JSON")
}

#[track_caller]
pub fn until(description: &str, condition: impl FnMut() -> bool) {
    wait::eventually(description, SOON, condition);
}

/// The buffer ids of the events, in order.
pub fn numbers(peer: &Peer) -> Vec<String> {
    peer.read(|heard| {
        heard.of_type("inbound").filter_map(|it| it["bufferId"].as_str().map(str::to_owned)).collect()
    })
}

#[track_caller]
pub fn wait_texts(peer: &Peer, want: &[&str]) {
    let found = peer.wait_until(SOON, |heard| (heard.texts() == want).then_some(()));
    assert!(found.is_some(), "{:?}", peer.read(|heard| heard.texts()));
}

#[track_caller]
pub fn wait_closed(peer: &Peer, want: u16) -> String {
    let closed = peer.wait_until(SOON, |heard| heard.closed.clone());
    let (code, reason) = closed.expect("closed");
    assert_eq!(code, want, "{reason}");
    reason
}
