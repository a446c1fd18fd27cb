//! Telegram's two columns: it is polled, or calls us.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use petasos_fakes::Telegram as Fake;
use petasos_fakes::hooks::Delivery;
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_platforms::telegram::{Config, Telegram, WebhookConfig};
use petasos_platforms::{Adapter, Secret};
use serde_json::json;

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Signs, Temper, Trouble};

const TOKEN: &str = "123456:secret";
const WEBHOOK_SECRET: &str = "s3cret_-of-a-hook";
const HOOK: &str = "/tg/hook";
const USER: i64 = 5;
const GROUP: i64 = -100;

struct Rig {
    fake: Arc<Fake>,
    adapter: Adapter,
    temper: Temper,
    /// Where it is called, unless it polls.
    port: Option<u16>,
    /// The number of the last update.
    last: AtomicI64,
}

pub(crate) fn start(temper: Temper) -> Box<dyn Peer> {
    boxed(Arc::new(Fake::start().expect("a fake")), temper, None)
}

/// The other link: Telegram calls us.
pub(crate) fn called(temper: Temper) -> Box<dyn Peer> {
    boxed(Arc::new(Fake::start().expect("a fake")), temper, Some(petasos_fakes::port::free()))
}

fn boxed(fake: Arc<Fake>, temper: Temper, port: Option<u16>) -> Box<dyn Peer> {
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fake.url());
    config.reactions = true;
    config.poll_backoff_base = Duration::from_millis(1);
    if temper == Temper::Impatient {
        config.request_timeout = Duration::from_millis(300);
        (config.poll_timeout, config.poll_grace) = (Duration::from_secs(1), Duration::from_millis(300));
    }
    config.webhook = port.map(|port| WebhookConfig {
        secret: Some(Secret::new(WEBHOOK_SECRET)),
        port,
        beat: Duration::from_millis(50),
        ..WebhookConfig::new(format!("http://127.0.0.1:{port}{HOOK}"))
    });
    let adapter = Adapter::Telegram(Telegram::new(config).expect("valid"));
    Box::new(Rig { fake, adapter, temper, port, last: AtomicI64::new(0) })
}

/// Tells an update again, as Telegram does if it lost our answer.
fn tell_again(port: u16, update: &serde_json::Value) {
    let delivery = Delivery::json(HOOK, update).header("X-Telegram-Bot-Api-Secret-Token", WEBHOOK_SECRET);
    std::thread::spawn(move || delivery.post(port));
}

fn chat(place: Place) -> i64 {
    match place {
        Place::Private => USER,
        Place::Group => GROUP,
    }
}

fn fault(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::TooMany => Fault::too_many(2),
        Trouble::Blocked => Fault::blocked(),
        Trouble::NoChat => Fault::status(400, "Bad Request: chat not found"),
        Trouble::NoFiles => {
            Fault::status(400, "Bad Request: not enough rights to send documents to the chat")
        }
        Trouble::ServerError => Fault::status(500, "Internal Server Error"),
        Trouble::Rubbish => Fault::Garbage,
        Trouble::Reset => Fault::ResetBefore,
        Trouble::LostAnswer => Fault::ResetAfter,
        Trouble::NoAnswer => Fault::HangAfter,
    }
}

impl Peer for Rig {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn Peer> {
        boxed(self.fake.clone(), self.temper, self.port)
    }

    fn secrets(&self) -> &'static [&'static str] {
        // The door has a field of that name.
        if self.port.is_some() { &[TOKEN, WEBHOOK_SECRET] } else { &[TOKEN, "secret"] }
    }

    fn remedy(&self) -> &'static str {
        "TELEGRAM_BOT_TOKEN"
    }

    fn user(&self) -> String {
        USER.to_string()
    }

    fn chat(&self, place: Place) -> String {
        chat(place).to_string()
    }

    fn say(&self, place: Place, text: &str) -> String {
        let pushed = self.fake.push(Incoming::text(chat(place), USER, text));
        self.last.store(pushed.update_id, Ordering::Relaxed);
        pushed.message_id.to_string()
    }

    fn say_command(&self) {
        self.fake.push_text(USER, USER, "/status");
    }

    fn thread(&self) -> String {
        // A group without any topic does not look at their numbers.
        self.fake.add_topic(GROUP, 11);
        self.fake.add_topic(GROUP, 12);
        "11".to_owned()
    }

    fn seen_in(&self, thread: &str) -> Vec<String> {
        let thread = thread.parse().ok();
        let seen = self.fake.visible(GROUP).into_iter().filter(|it| it.thread == thread);
        seen.map(|it| it.text).collect()
    }

    fn remove_thread(&self, thread: &str) {
        self.fake.remove_topic(GROUP, thread.parse().expect("a number"));
    }

    fn say_file(&self, text: &str, name: &str, content: &[u8], shape: Shape) {
        let size = if shape == Shape::SaysItIsSmall { 1 } else { content.len() };
        match shape {
            Shape::LeadsTo(url) => self.fake.add_redirect("F1", url),
            Shape::Sound | Shape::SaysItIsSmall => self.fake.add_file("F1", content.to_vec()),
        }
        let document =
            json!({ "file_id": "F1", "file_unique_id": "u", "file_name": name, "file_size": size });
        let fields = json!({ "text": null, "caption": text, "document": document });
        self.fake.push(Incoming::text(USER, USER, "").with(fields));
    }

    fn download_trouble(&self, trouble: FileTrouble) {
        self.fake.on("download").does(match trouble {
            FileTrouble::Gone => Fault::status(404, "Not Found"),
            FileTrouble::NotWell => Fault::status(502, "Bad Gateway"),
            FileTrouble::Reset => Fault::ResetBefore,
            FileTrouble::CutOff => Fault::HalfBody,
        });
    }

    fn say_rubbish(&self) {
        self.fake.push_update(json!({ "message": { "message_id": "nine", "text": "sad news" } }));
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        let Some(port) = self.port else {
            return self.fake.on("getUpdates").does(Fault::DuplicateUpdates);
        };
        let id: i64 = id.parse().expect("a number");
        let message = json!({
            "message_id": id, "date": 1, "text": text, "chat": { "id": chat(place), "type": "private" },
            "from": { "id": USER, "is_bot": false, "first_name": "U" },
        });
        tell_again(port, &json!({ "update_id": self.last.load(Ordering::Relaxed), "message": message }));
    }

    fn press(&self, place: Place, message: &str, data: &str) {
        self.fake.push_callback(chat(place), USER, message.parse().expect("a number"), data);
    }

    fn seen(&self, place: Place) -> Vec<Seen> {
        let seen = self.fake.visible(chat(place)).into_iter();
        seen.map(|it| Seen {
            id: it.id.to_string(),
            text: it.text,
            answers: it.reply_to.map(|id| id.to_string()),
        })
        .collect()
    }

    fn marks(&self, place: Place, message: &str) -> Vec<String> {
        self.fake.reactions(chat(place), message.parse().expect("a number"))
    }

    fn is_confirmed(&self, cursor: Option<&str>) -> bool {
        if self.port.is_some() {
            return self.fake.pending_updates() == 0;
        }
        let cursor = cursor.and_then(|cursor| cursor.parse().ok());
        cursor.is_some() && self.fake.confirmed_offset() >= cursor
    }

    fn signs(&self) -> Option<Signs> {
        let polls = self.port.is_none() && self.temper == Temper::Impatient;
        polls.then(|| Signs { seen: self.fake.calls_of("getUpdates").len(), enough: 3 })
    }

    fn files(&self, place: Place) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(chat(place)).into_iter().filter_map(|it| it.file);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn trouble(&self, trouble: Trouble) {
        self.fake.on("sendMessage").does(fault(trouble));
    }

    fn file_trouble(&self, trouble: Trouble) {
        self.fake.on("sendDocument").does(fault(trouble));
    }

    fn down(&self) {
        self.fake.down();
    }

    fn up(&self) {
        self.fake.up().expect("the port is ours");
    }

    fn silence(&self) {
        self.fake.on("*").always().does(Fault::Hang);
    }

    fn speak(&self) {
        self.fake.clear_faults();
    }

    fn revoke(&self) {
        self.fake.expect_token("999:other");
    }
}
