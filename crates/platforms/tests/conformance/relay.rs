//! The relay's column. What is sent takes the connection that listens; its own tests send.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::relay::channel::ladder;
use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_platforms::Adapter;
use petasos_platforms::relay::{Config, Identity, adapters, credentials};
use serde_json::json;

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Temper, Trouble};

const SECRET: &str = "s3cret-of-a-gateway";

const APPLIES: &[&str] = &[
    "a private message is heard, whole",
    "a message in a group is heard, whole",
    "a link that hears says that it is alive",
    "the platform is told only after the commit",
    "what is not taken is not confirmed, and comes again",
    "what is told twice has one identity",
    "rubbish between two messages loses neither",
    "what cannot be read is handed over as it came, until it is taken",
    "a restart loses nothing and doubles no identity",
    "an outage loses nothing",
    "a server that falls silent is found",
    "a server that has nothing to say is left alone",
    "a cursor that means nothing is no reason to fail",
    "a gateway that is gone ends the link",
    "the capabilities make sense",
    "no part of any text is too long, mark included",
    "no preview of any text is too long",
];

struct Rig {
    fake: Arc<Connector>,
    adapter: Adapter,
    temper: Temper,
}

pub(crate) fn start(temper: Temper) -> Box<dyn Peer> {
    boxed(Arc::new(Connector::start().expect("a fake")), temper)
}

fn boxed(fake: Arc<Connector>, temper: Temper) -> Box<dyn Peer> {
    let mut config = Config::new(fake.url());
    let platform = Platform::parse("discord").expect("known");
    config.identities = vec![Identity { platform, bot_id: "app".into() }];
    config.credentials = Some(credentials("gw-1", SECRET));
    config.terms.ladder = ladder(Duration::from_millis(20), Duration::from_millis(100));
    if temper == Temper::Impatient {
        config.open_timeout = Duration::from_millis(500);
        config.ping_every = Duration::from_millis(100);
        config.silence = Duration::from_millis(500);
    }
    let adapter = Adapter::Relay(adapters(config).expect("valid").remove(0));
    Box::new(Rig { fake, adapter, temper })
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

    fn say_rubbish(&self) {
        self.fake.push(json!({"text": "sad news", "source": "nowhere"}));
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        self.tell(place, id, text);
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.fake.read(|world| !world.acks.is_empty() && world.backlog() == 0)
    }

    fn applies(&self, case: &str) -> bool {
        let known = |applies: &str| crate::CASES.iter().any(|case| case.name == applies);
        let odd: Vec<_> = APPLIES.iter().filter(|applies| !known(applies)).collect();
        assert!(odd.is_empty(), "cases have other names now: {odd:?}");
        APPLIES.contains(&case)
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
