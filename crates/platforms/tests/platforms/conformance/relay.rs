//! The relay's column. What is sent takes the connection that listens; its own tests send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::link::reconnect::ReconnectPolicy;
use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_platforms::Adapter;
use petasos_platforms::relay::{Config, Identity, adapters, credentials};
use serde_json::json;

use super::platform::{
    ChatKind, DownloadFault, FileOffer, LinkActivity, SendFault, TestPlatform, TimeoutProfile, VisibleMessage,
};

const SECRET: &str = "s3cret-of-a-gateway";

const SENDS: &str =
    "what goes out takes the connection that listens, and the kit sends without one; its own tests send";
const DIALS: &str = "it dials again by itself for as long as it runs; its own tests take the connector away";
const SIGNED: &str =
    "the connector says by its close codes what it thinks of our secret; tests of their own play them";
const FILES: &str = "files are handed out by the connector, whose door has tests of its own";

/// Every other case holds.
const EXCUSES: &[(&str, &str)] = &[
    ("ignores the bot's own messages", SENDS),
    ("received messages have a timestamp", "an event of the relay does not say when it was written"),
    ("a server that goes down is retried later", DIALS),
    ("bad credentials end the link with advice", SIGNED),
    ("revoked credentials end a running link", SIGNED),
    ("a short text is sent and has an id", SENDS),
    ("a long text arrives complete, in ordered parts", SENDS),
    ("white space is not sent", SENDS),
    ("a reply is shown as a reply", SENDS),
    ("a reply to a deleted message is sent without the reply", SENDS),
    ("a message to a thread appears there", SENDS),
    ("a deleted thread does not make its chat dead", SENDS),
    ("an oversized text is refused as too long", SENDS),
    ("an edit replaces the text, and repeating it succeeds", SENDS),
    ("an edit of a deleted message is refused", SENDS),
    ("a preview of any length can be sent and replaced", SENDS),
    ("a part of the maximum edit size can replace its preview", SENDS),
    ("a deletion can be repeated", SENDS),
    ("the typing indicator does not fail", SENDS),
    ("a pressed button is received", SENDS),
    ("one idempotency key creates one message", SENDS),
    ("a forbidden chat is refused and dead", SENDS),
    ("a missing chat is refused and dead", SENDS),
    ("a rate limit is retried after the wait", SENDS),
    ("a server error is retried later", SENDS),
    ("a lost response is an unknown outcome", SENDS),
    ("a reset request is an unknown outcome", SENDS),
    ("a malformed response is an unknown outcome", SENDS),
    ("a missing response is an unknown outcome", SENDS),
    ("a refused connection sends nothing", SENDS),
    ("bad credentials are fatal and give advice", SENDS),
    ("a status reaction is set, replaced and cleared", SENDS),
    ("a file arrives complete, with name and caption", SENDS),
    ("a lost response to a file is an unknown outcome", SENDS),
    ("a chat that forbids files accepts texts", SENDS),
    ("a file removed after the policy check is sent", SENDS),
    ("an attachment is downloaded completely", FILES),
    ("an oversized attachment is refused despite its claimed size", FILES),
    ("an attachment at a private address is refused", FILES),
    ("a failed download says whether to retry", FILES),
];

struct Rig {
    fake: Arc<Connector>,
    adapter: Adapter,
    timeouts: TimeoutProfile,
    commands: AtomicU64,
}

pub(crate) fn start(timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    boxed(Arc::new(Connector::start().expect("a fake")), timeouts)
}

fn boxed(fake: Arc<Connector>, timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let mut config = Config::new(fake.url());
    let platform = Platform::parse("discord").expect("known");
    config.identities = vec![Identity { platform, bot_id: "app".into() }];
    config.credentials = Some(credentials("gw-1", SECRET));
    config.terms.redial = ReconnectPolicy::relay(Duration::from_millis(20), Duration::from_millis(100));
    if timeouts == TimeoutProfile::Short {
        config.open_timeout = Duration::from_millis(500);
        config.ping_every = Duration::from_millis(100);
        config.silence = Duration::from_millis(500);
    }
    let adapter = Adapter::Relay(adapters(config).expect("valid").remove(0));
    Box::new(Rig { fake, adapter, timeouts, commands: AtomicU64::new(0) })
}

fn chat(place: ChatKind) -> (&'static str, &'static str) {
    match place {
        ChatKind::Private => ("direct", "dm"),
        ChatKind::Group => ("room", "group"),
    }
}

impl Rig {
    fn deliver_event(&self, place: ChatKind, id: &str, text: &str) {
        let (chat, kind) = chat(place);
        self.fake.push(event("discord", chat, kind, text, Some(id)));
    }
}

impl TestPlatform for Rig {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn TestPlatform> {
        boxed(self.fake.clone(), self.timeouts)
    }

    fn secrets(&self) -> &'static [&'static str] {
        &[SECRET]
    }

    fn remedy(&self) -> &'static str {
        "GATEWAY_RELAY_SECRET"
    }

    fn user(&self) -> String {
        "u1".to_owned()
    }

    fn chat(&self, place: ChatKind) -> String {
        chat(place).0.to_owned()
    }

    fn receive_message(&self, place: ChatKind, text: &str) -> String {
        let id = format!("m-{text}");
        self.deliver_event(place, &id, text);
        id
    }

    fn receive_command(&self) {
        let (chat, kind) = chat(ChatKind::Private);
        let id = format!("m-{}", self.commands.fetch_add(1, Ordering::Relaxed));
        self.fake.push(event("discord", chat, kind, "/status", Some(&id)));
    }

    fn thread(&self) -> String {
        String::new()
    }

    fn sent_in_thread(&self, _thread: &str) -> Vec<String> {
        Vec::new()
    }

    fn remove_thread(&self, _thread: &str) {}

    fn receive_unreadable_event(&self) {
        self.fake.push(json!({"text": "sad news", "source": "nowhere"}));
    }

    fn redeliver(&self, place: ChatKind, id: &str, text: &str) {
        self.deliver_event(place, id, text);
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.fake.read(|world| !world.acks.is_empty() && world.backlog() == 0)
    }

    fn activity(&self) -> Option<LinkActivity> {
        let seen = self.fake.read(|world| world.pings);
        (self.timeouts == TimeoutProfile::Short).then_some(LinkActivity { seen, enough: 8 })
    }

    fn skipped_cases(&self) -> &'static [(&'static str, &'static str)] {
        EXCUSES
    }

    fn down(&self) {
        self.fake.down();
    }

    fn up(&self) {
        self.fake.up().expect("the port is ours");
    }

    fn silence(&self) {
        self.fake.silence();
    }

    fn end_silence(&self) {}

    fn receive_file(&self, _text: &str, _name: &str, _content: &[u8], _shape: FileOffer) {}

    fn fail_next_download(&self, _trouble: DownloadFault) {}

    fn press_button(&self, _place: ChatKind, _message: &str, _data: &str) {}

    fn sent_messages(&self, _place: ChatKind) -> Vec<VisibleMessage> {
        Vec::new()
    }

    fn files(&self, _place: ChatKind) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn reactions(&self, _place: ChatKind, _message: &str) -> Vec<String> {
        Vec::new()
    }

    fn fail_next_send(&self, _trouble: SendFault) {}

    fn fail_next_file(&self, _trouble: SendFault) {}

    fn revoke(&self) {}
}
