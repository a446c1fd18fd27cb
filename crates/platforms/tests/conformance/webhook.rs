//! The column of webhooks. The platform calls us here: its fake is a service that delivers, and delivers again.
//! Answers go out on other platforms; comments on GitHub have tests of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use petasos_fakes::hooks::{Delivery, Sender};
use petasos_platforms::Adapter;
use petasos_platforms::webhook::{Config, Webhook};
use serde_json::json;

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Temper, Trouble};

const SECRET: &str = "s3cret-of-a-route";

/// There is no server to lose, no private chat, and nobody to write to.
const APPLIES: &[&str] = &[
    "a message in a group is heard, whole",
    "a link that hears says that it is alive",
    "the platform is told only after the commit",
    "what is not taken is not confirmed, and comes again",
    "what is told twice has one identity",
    "rubbish between two messages loses neither",
    "a restart loses nothing and doubles no identity",
    "a server that has nothing to say is left alone",
    "a cursor that means nothing is no reason to fail",
    "a gateway that is gone ends the link",
    "the capabilities make sense",
    "no part of any text is too long, mark included",
    "no preview of any text is too long",
];

struct Rig {
    world: Arc<World>,
    adapter: Adapter,
}

struct World {
    sender: Sender,
    port: u16,
    next: AtomicU64,
    /// What each route delivered last.
    last: Mutex<[Option<String>; 2]>,
}

pub(crate) fn start(_temper: Temper) -> Box<dyn Peer> {
    let port = petasos_fakes::port::free();
    let sender = Sender::start(port);
    boxed(Arc::new(World { sender, port, next: AtomicU64::new(1), last: Mutex::default() }))
}

fn boxed(world: Arc<World>) -> Box<dyn Peer> {
    let route = json!({ "secret": SECRET, "prompt": "{text}" });
    let routes = json!({ "one": route, "two": route });
    let config = Config {
        port: world.port,
        routes: routes.as_object().expect("a section").clone(),
        rate_limit: 10_000,
        ..Config::default()
    };
    Box::new(Rig { world, adapter: Adapter::Webhook(Webhook::new(config).expect("valid")) })
}

fn route(place: Place) -> &'static str {
    match place {
        Place::Private => "one",
        Place::Group => "two",
    }
}

impl Rig {
    fn deliver(&self, place: Place, id: &str, text: &str) {
        let delivery = Delivery::json(format!("/webhooks/{}", route(place)), &json!({ "text": text }));
        self.world.sender.send(delivery.header("X-Gitlab-Token", SECRET).header("X-Request-ID", id));
        let mut last = self.world.last.lock().unwrap_or_else(PoisonError::into_inner);
        last[usize::from(place == Place::Group)] = Some(id.to_owned());
    }
}

impl Peer for Rig {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn Peer> {
        boxed(self.world.clone())
    }

    fn secrets(&self) -> &'static [&'static str] {
        &[SECRET]
    }

    fn remedy(&self) -> &'static str {
        "WEBHOOK_PORT"
    }

    fn user(&self) -> String {
        // Of the route that stands for a group: there is no other kind.
        "webhook:two".to_owned()
    }

    fn chat(&self, place: Place) -> String {
        let last = self.world.last.lock().unwrap_or_else(PoisonError::into_inner);
        let id = last[usize::from(place == Place::Group)].clone().unwrap_or_default();
        format!("webhook:{}:{id}", route(place))
    }

    fn say(&self, place: Place, text: &str) -> String {
        let id = format!("d-{}", self.world.next.fetch_add(1, Ordering::Relaxed));
        self.deliver(place, &id, text);
        id
    }

    fn say_rubbish(&self) {
        let rubbish =
            Delivery { body: b"{\"text\": ".to_vec(), ..Delivery::json("/webhooks/one", &json!({})) };
        self.world.sender.send(rubbish.header("X-Gitlab-Token", SECRET));
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        self.deliver(place, id, text);
    }

    fn say_file(&self, _text: &str, _name: &str, _content: &[u8], _shape: Shape) {}

    fn download_trouble(&self, _trouble: FileTrouble) {}

    fn files(&self, _place: Place) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn file_trouble(&self, _trouble: Trouble) {}

    fn press(&self, _place: Place, _message: &str, _data: &str) {}

    fn seen(&self, _place: Place) -> Vec<Seen> {
        Vec::new()
    }

    fn marks(&self, _place: Place, _message: &str) -> Vec<String> {
        Vec::new()
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.world.sender.pending() == 0
    }

    fn applies(&self, case: &str) -> bool {
        let known = |applies: &str| crate::CASES.iter().any(|case| case.name == applies);
        assert!(APPLIES.iter().all(|applies| known(applies)), "a case has another name now");
        APPLIES.contains(&case)
    }

    fn trouble(&self, _trouble: Trouble) {}

    fn down(&self) {}

    fn up(&self) {}

    fn silence(&self) {}

    fn speak(&self) {}

    fn revoke(&self) {}
}
