//! Telegram's two columns: polling and webhook.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use petasos_fakes::Telegram as Fake;
use petasos_fakes::hooks::WebhookDelivery;
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_platforms::telegram::{Config, Telegram, WebhookConfig};
use petasos_platforms::{Adapter, Secret};
use serde_json::json;

use super::platform::{
    ChatKind, DownloadFault, FileOffer, LinkActivity, SendFault, TestPlatform, TimeoutProfile, VisibleMessage,
};

const TOKEN: &str = "123456:secret";
const WEBHOOK_SECRET: &str = "s3cret_-of-a-hook";
const HOOK: &str = "/tg/hook";
const USER: i64 = 5;
const GROUP: i64 = -100;

struct TelegramPlatform {
    fake: Arc<Fake>,
    adapter: Adapter,
    timeouts: TimeoutProfile,
    /// Set for the webhook link.
    port: Option<u16>,
    last: AtomicI64,
}

pub(crate) fn start(timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    boxed(Arc::new(Fake::start().expect("a fake")), timeouts, None)
}

pub(crate) fn start_webhook(timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    boxed(Arc::new(Fake::start().expect("a fake")), timeouts, Some(petasos_fakes::port::free()))
}

fn boxed(fake: Arc<Fake>, timeouts: TimeoutProfile, port: Option<u16>) -> Box<dyn TestPlatform> {
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fake.url());
    config.reactions = true;
    config.poll_backoff_base = Duration::from_millis(1);
    if timeouts == TimeoutProfile::Short {
        config.request_timeout = Duration::from_millis(300);
        (config.poll_timeout, config.poll_grace) = (Duration::from_secs(1), Duration::from_millis(300));
    }
    config.webhook = port.map(|port| WebhookConfig {
        secret: Some(Secret::new(WEBHOOK_SECRET)),
        port,
        check_interval: Duration::from_millis(50),
        ..WebhookConfig::new(format!("http://127.0.0.1:{port}{HOOK}"))
    });
    let adapter = Adapter::Telegram(Telegram::new(config).expect("valid"));
    Box::new(TelegramPlatform { fake, adapter, timeouts, port, last: AtomicI64::new(0) })
}

/// Repeats an update, as Telegram does after a lost response.
#[expect(clippy::disallowed_methods, reason = "the request ends after the test has gone on")]
fn post_update(port: u16, update: &serde_json::Value) {
    let delivery =
        WebhookDelivery::json(HOOK, update).header("X-Telegram-Bot-Api-Secret-Token", WEBHOOK_SECRET);
    std::thread::spawn(move || delivery.post(port));
}

fn chat(kind: ChatKind) -> i64 {
    match kind {
        ChatKind::Private => USER,
        ChatKind::Group => GROUP,
    }
}

fn service_fault(fault: SendFault) -> Fault {
    match fault {
        SendFault::TooMany => Fault::too_many(2),
        SendFault::Blocked => Fault::blocked(),
        SendFault::NoChat => Fault::status(400, "Bad Request: chat not found"),
        SendFault::NoFiles => {
            Fault::status(400, "Bad Request: not enough rights to send documents to the chat")
        }
        SendFault::ServerError => Fault::status(500, "Internal Server Error"),
        SendFault::Garbage => Fault::Garbage,
        SendFault::Reset => Fault::ResetBefore,
        SendFault::LostAnswer => Fault::ResetAfter,
        SendFault::NoAnswer => Fault::HangAfter,
    }
}

impl TestPlatform for TelegramPlatform {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn TestPlatform> {
        boxed(self.fake.clone(), self.timeouts, self.port)
    }

    fn secrets(&self) -> &'static [&'static str] {
        // The endpoint has a field named `secret`.
        if self.port.is_some() { &[TOKEN, WEBHOOK_SECRET] } else { &[TOKEN, "secret"] }
    }

    fn remedy(&self) -> &'static str {
        "TELEGRAM_BOT_TOKEN"
    }

    fn user(&self) -> String {
        USER.to_string()
    }

    fn chat(&self, kind: ChatKind) -> String {
        chat(kind).to_string()
    }

    fn receive_message(&self, kind: ChatKind, text: &str) -> String {
        let pushed = self.fake.push(Incoming::text(chat(kind), USER, text));
        self.last.store(pushed.update_id, Ordering::Relaxed);
        pushed.message_id.to_string()
    }

    fn receive_command(&self) {
        self.fake.push_text(USER, USER, "/status");
    }

    fn thread(&self) -> String {
        // A group without any topic does not check topic ids.
        self.fake.add_topic(GROUP, 11);
        self.fake.add_topic(GROUP, 12);
        "11".to_owned()
    }

    fn sent_in_thread(&self, thread: &str) -> Vec<String> {
        let thread = thread.parse().ok();
        let seen = self.fake.visible(GROUP).into_iter().filter(|it| it.thread == thread);
        seen.map(|it| it.text).collect()
    }

    fn remove_thread(&self, thread: &str) {
        self.fake.remove_topic(GROUP, thread.parse().expect("a number"));
    }

    fn receive_file(&self, text: &str, name: &str, content: &[u8], shape: FileOffer) {
        let size = if shape == FileOffer::UnderstatedSize { 1 } else { content.len() };
        match shape {
            FileOffer::RedirectsTo(url) => self.fake.add_redirect("F1", url),
            FileOffer::Valid | FileOffer::UnderstatedSize => self.fake.add_file("F1", content.to_vec()),
        };
        let document =
            json!({ "file_id": "F1", "file_unique_id": "u", "file_name": name, "file_size": size });
        let fields = json!({ "text": null, "caption": text, "document": document });
        self.fake.push(Incoming::text(USER, USER, "").with(fields));
    }

    fn fail_next_download(&self, fault: DownloadFault) {
        self.fake.on("download").does(match fault {
            DownloadFault::Gone => Fault::status(404, "Not Found"),
            DownloadFault::ServerError => Fault::status(502, "Bad Gateway"),
            DownloadFault::Reset => Fault::ResetBefore,
            DownloadFault::CutOff => Fault::HalfBody,
        });
    }

    fn receive_unreadable_event(&self) {
        self.fake.push_update(json!({ "message": { "message_id": "nine", "text": "sad news" } }));
    }

    fn redeliver(&self, kind: ChatKind, id: &str, text: &str) {
        let Some(port) = self.port else {
            return self.fake.on("getUpdates").does(Fault::duplicate_updates());
        };
        let id: i64 = id.parse().expect("a number");
        let message = json!({
            "message_id": id, "date": 1, "text": text, "chat": { "id": chat(kind), "type": "private" },
            "from": { "id": USER, "is_bot": false, "first_name": "U" },
        });
        post_update(port, &json!({ "update_id": self.last.load(Ordering::Relaxed), "message": message }));
    }

    fn press_button(&self, kind: ChatKind, message: &str, data: &str) {
        self.fake.push_callback(chat(kind), USER, message.parse().expect("a number"), data);
    }

    fn sent_messages(&self, kind: ChatKind) -> Vec<VisibleMessage> {
        let seen = self.fake.visible(chat(kind)).into_iter();
        seen.map(|it| VisibleMessage {
            id: it.id.to_string(),
            text: it.text,
            answers: it.reply_to.map(|id| id.to_string()),
        })
        .collect()
    }

    fn reactions(&self, kind: ChatKind, message: &str) -> Vec<String> {
        self.fake.reactions(chat(kind), message.parse().expect("a number"))
    }

    fn is_confirmed(&self, cursor: Option<&str>) -> bool {
        if self.port.is_some() {
            return self.fake.pending_updates() == 0;
        }
        let cursor = cursor.and_then(|cursor| cursor.parse().ok());
        cursor.is_some() && self.fake.confirmed_offset() >= cursor
    }

    fn activity(&self) -> Option<LinkActivity> {
        let polls = self.port.is_none() && self.timeouts == TimeoutProfile::Short;
        polls.then(|| LinkActivity { seen: self.fake.calls_of("getUpdates").len(), enough: 3 })
    }

    fn files(&self, kind: ChatKind) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(chat(kind)).into_iter().filter_map(|it| it.file);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn fail_next_send(&self, fault: SendFault) {
        self.fake.on("sendMessage").does(service_fault(fault));
    }

    fn fail_next_file(&self, fault: SendFault) {
        self.fake.on("sendDocument").does(service_fault(fault));
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

    fn end_silence(&self) {
        self.fake.clear_faults();
    }

    fn revoke(&self) {
        self.fake.expect_token("999:other");
    }
}
