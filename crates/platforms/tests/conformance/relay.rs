//! The relay's column. What is sent takes the connection that listens; its own tests send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::link::redial::Policy;
use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_platforms::Adapter;
use petasos_platforms::relay::{Config, Identity, adapters, credentials};
use serde_json::json;

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Signs, Temper, Trouble};

const SECRET: &str = "s3cret-of-a-gateway";

const SENDS: &str =
    "what goes out takes the connection that listens, and the kit sends without one; its own tests send";
const DIALS: &str = "it dials again by itself for as long as it runs; its own tests take the connector away";
const SIGNED: &str =
    "the connector says by its close codes what it thinks of our secret; tests of their own play them";
const FILES: &str = "files are handed out by the connector, whose door has tests of its own";

/// Every other case holds.
const EXCUSES: &[(&str, &str)] = &[
    ("our own messages are not heard", SENDS),
    ("what is heard has its moment", "an event of the relay does not say when it was written"),
    ("a server that goes away is tried again later", DIALS),
    ("bad credentials end the link and say what to do", SIGNED),
    ("credentials that are revoked end a link that stands", SIGNED),
    ("a short text is sent and has an id", SENDS),
    ("a long text arrives in parts, in order and whole", SENDS),
    ("white space is not sent", SENDS),
    ("an answer is shown as an answer", SENDS),
    ("an answer to a message that is gone is sent all the same", SENDS),
    ("what is sent into a thread stands there", SENDS),
    ("a thread that is gone is not the end of its chat", SENDS),
    ("a text that is too long is refused by that name", SENDS),
    ("an edit replaces, and the same again is a success", SENDS),
    ("an edit of a message that is gone is refused", SENDS),
    ("a preview of any length can be shown and replaced", SENDS),
    ("a part of the longest size that edits take can replace its preview", SENDS),
    ("a deletion deletes, and again is a success", SENDS),
    ("typing does not fail", SENDS),
    ("a pressed button comes back", SENDS),
    ("one key makes one message", SENDS),
    ("a chat that bars us is refused and dead", SENDS),
    ("a chat that is not there is refused and dead", SENDS),
    ("too many requests are tried again after the wait", SENDS),
    ("a server that is not well is tried again", SENDS),
    ("a lost answer may have had its effect", SENDS),
    ("a reset request may have had its effect", SENDS),
    ("a garbled answer may have had its effect", SENDS),
    ("an answer that never comes may have had its effect", SENDS),
    ("a refused connection certainly sent nothing", SENDS),
    ("bad credentials are fatal and say what to do", SENDS),
    ("a mark is put, replaced, and taken away", SENDS),
    ("a file arrives whole, under its name and with its caption", SENDS),
    ("a lost answer to a file may have had its effect", SENDS),
    ("a chat that takes no files takes texts", SENDS),
    ("a file that is removed after it was judged is sent", SENDS),
    ("a file that somebody sends is fetched, whole", FILES),
    ("a file that is too large is not fetched, whatever it says", FILES),
    ("a file that leads to a private address is not fetched", FILES),
    ("a download that fails says whether to try again", FILES),
];

struct Rig {
    fake: Arc<Connector>,
    adapter: Adapter,
    temper: Temper,
    commands: AtomicU64,
}

pub(crate) fn start(temper: Temper) -> Box<dyn Peer> {
    boxed(Arc::new(Connector::start().expect("a fake")), temper)
}

fn boxed(fake: Arc<Connector>, temper: Temper) -> Box<dyn Peer> {
    let mut config = Config::new(fake.url());
    let platform = Platform::parse("discord").expect("known");
    config.identities = vec![Identity { platform, bot_id: "app".into() }];
    config.credentials = Some(credentials("gw-1", SECRET));
    config.terms.redial = Policy::relay(Duration::from_millis(20), Duration::from_millis(100));
    if temper == Temper::Impatient {
        config.open_timeout = Duration::from_millis(500);
        config.ping_every = Duration::from_millis(100);
        config.silence = Duration::from_millis(500);
    }
    let adapter = Adapter::Relay(adapters(config).expect("valid").remove(0));
    Box::new(Rig { fake, adapter, temper, commands: AtomicU64::new(0) })
}

fn chat(place: Place) -> (&'static str, &'static str) {
    match place {
        Place::Private => ("direct", "dm"),
        Place::Group => ("room", "group"),
    }
}

impl Rig {
    fn tell(&self, place: Place, id: &str, text: &str) {
        let (chat, kind) = chat(place);
        self.fake.push(event("discord", chat, kind, text, Some(id)));
    }
}

impl Peer for Rig {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn Peer> {
        boxed(self.fake.clone(), self.temper)
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

    fn chat(&self, place: Place) -> String {
        chat(place).0.to_owned()
    }

    fn say(&self, place: Place, text: &str) -> String {
        let id = format!("m-{text}");
        self.tell(place, &id, text);
        id
    }

    fn say_command(&self) {
        let (chat, kind) = chat(Place::Private);
        let id = format!("m-{}", self.commands.fetch_add(1, Ordering::Relaxed));
        self.fake.push(event("discord", chat, kind, "/status", Some(&id)));
    }

    fn thread(&self) -> String {
        String::new()
    }

    fn seen_in(&self, _thread: &str) -> Vec<String> {
        Vec::new()
    }

    fn remove_thread(&self, _thread: &str) {}

    fn say_rubbish(&self) {
        self.fake.push(json!({"text": "sad news", "source": "nowhere"}));
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        self.tell(place, id, text);
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.fake.read(|world| !world.acks.is_empty() && world.backlog() == 0)
    }

    fn signs(&self) -> Option<Signs> {
        let seen = self.fake.read(|world| world.pings);
        (self.temper == Temper::Impatient).then_some(Signs { seen, enough: 8 })
    }

    fn excuses(&self) -> &'static [(&'static str, &'static str)] {
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

    fn speak(&self) {}

    fn say_file(&self, _text: &str, _name: &str, _content: &[u8], _shape: Shape) {}

    fn download_trouble(&self, _trouble: FileTrouble) {}

    fn press(&self, _place: Place, _message: &str, _data: &str) {}

    fn seen(&self, _place: Place) -> Vec<Seen> {
        Vec::new()
    }

    fn files(&self, _place: Place) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn marks(&self, _place: Place, _message: &str) -> Vec<String> {
        Vec::new()
    }

    fn trouble(&self, _trouble: Trouble) {}

    fn file_trouble(&self, _trouble: Trouble) {}

    fn revoke(&self) {}
}
