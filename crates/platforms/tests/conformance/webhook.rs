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

const PROGRAMS: &str = "programs call us, not people: nobody is alone with us, and nobody gives commands";
const NOBODY: &str =
    "nobody reads there: answers go out on other platforms, and comments on GitHub have their own tests";
const NO_SERVER: &str =
    "there is no server to lose; our own listener that falls silent has a test of its own";
const OURS: &str = "the secret is ours, and a call without it is refused; nobody can take it from us";
const NO_FILES: &str = "deliveries have no attachments";

/// Every other case holds.
const EXCUSES: &[(&str, &str)] = &[
    ("a private message is heard, whole", PROGRAMS),
    ("a command is heard as one", PROGRAMS),
    ("our own messages are not heard", NOBODY),
    ("an outage loses nothing", NO_SERVER),
    ("a server that goes away is tried again later", NO_SERVER),
    ("a server that falls silent is found", NO_SERVER),
    ("bad credentials end the link and say what to do", OURS),
    ("credentials that are revoked end a link that stands", OURS),
    ("a short text is sent and has an id", NOBODY),
    ("a long text arrives in parts, in order and whole", NOBODY),
    ("white space is not sent", NOBODY),
    ("an answer is shown as an answer", NOBODY),
    ("an answer to a message that is gone is sent all the same", NOBODY),
    ("what is sent into a thread stands there", NOBODY),
    ("a thread that is gone is not the end of its chat", NOBODY),
    ("a text that is too long is refused by that name", NOBODY),
    ("an edit replaces, and the same again is a success", NOBODY),
    ("an edit of a message that is gone is refused", NOBODY),
    ("a preview of any length can be shown and replaced", NOBODY),
    ("a part of the longest size that edits take can replace its preview", NOBODY),
    ("a deletion deletes, and again is a success", NOBODY),
    ("typing does not fail", NOBODY),
    ("a pressed button comes back", NOBODY),
    ("one key makes one message", NOBODY),
    ("a chat that bars us is refused and dead", NOBODY),
    ("a chat that is not there is refused and dead", NOBODY),
    ("too many requests are tried again after the wait", NOBODY),
    ("a server that is not well is tried again", NOBODY),
    ("a lost answer may have had its effect", NOBODY),
    ("a reset request may have had its effect", NOBODY),
    ("a garbled answer may have had its effect", NOBODY),
    ("an answer that never comes may have had its effect", NOBODY),
    ("a refused connection certainly sent nothing", NOBODY),
    ("bad credentials are fatal and say what to do", NOBODY),
    ("a mark is put, replaced, and taken away", NOBODY),
    ("a file arrives whole, under its name and with its caption", NOBODY),
    ("a lost answer to a file may have had its effect", NOBODY),
    ("a chat that takes no files takes texts", NOBODY),
    ("a file that is removed after it was judged is sent", NOBODY),
    ("a file that somebody sends is fetched, whole", NO_FILES),
    ("a file that is too large is not fetched, whatever it says", NO_FILES),
    ("a file that leads to a private address is not fetched", NO_FILES),
    ("a download that fails says whether to try again", NO_FILES),
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
        let rubbish = Delivery {
            body: b"{\"text\": \"sad news".to_vec(),
            ..Delivery::json("/webhooks/one", &json!({}))
        };
        self.world.sender.send(rubbish.header("X-Gitlab-Token", SECRET));
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        self.deliver(place, id, text);
    }

    fn say_command(&self) {}

    fn thread(&self) -> String {
        String::new()
    }

    fn seen_in(&self, _thread: &str) -> Vec<String> {
        Vec::new()
    }

    fn remove_thread(&self, _thread: &str) {}

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

    fn excuses(&self) -> &'static [(&'static str, &'static str)] {
        EXCUSES
    }

    fn trouble(&self, _trouble: Trouble) {}

    fn down(&self) {}

    fn up(&self) {}

    fn silence(&self) {}

    fn speak(&self) {}

    fn revoke(&self) {}
}
