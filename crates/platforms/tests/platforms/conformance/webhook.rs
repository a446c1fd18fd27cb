//! The webhook column. Its fake is a service that delivers and retries. Comments on GitHub have their own
//! tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use petasos_fakes::hooks::{Sender, WebhookDelivery};
use petasos_platforms::Adapter;
use petasos_platforms::webhook::{Config, Webhook};
use serde_json::json;

use super::platform::{
    ChatKind, DownloadFault, FileOffer, SendFault, TestPlatform, TimeoutProfile, VisibleMessage,
};

const SECRET: &str = "s3cret-of-a-route";

const PROGRAMS: &str = "callers are programs: there are no private chats and no commands";
const NO_READER: &str =
    "the chat has no reader: answers go to other platforms, and comments on GitHub have their own tests";
const NO_SERVER: &str = "there is no server; the self-check of the listener has its own test";
const OWN_SECRET: &str = "the secret is set by the owner and cannot be revoked by a platform";
const NO_FILES: &str = "deliveries have no attachments";

/// All other cases apply.
const SKIPPED_CASES: &[(&str, &str)] = &[
    ("receives a private message unchanged", PROGRAMS),
    ("receives a command", PROGRAMS),
    ("ignores the bot's own messages", NO_READER),
    ("an outage loses nothing", NO_SERVER),
    ("a server that goes down is retried later", NO_SERVER),
    ("detects a silent server", NO_SERVER),
    ("bad credentials end the link with advice", OWN_SECRET),
    ("revoked credentials end a running link", OWN_SECRET),
    ("a short text is sent and has an id", NO_READER),
    ("a long text arrives complete, in ordered parts", NO_READER),
    ("white space is not sent", NO_READER),
    ("a reply is shown as a reply", NO_READER),
    ("a reply to a deleted message is sent without the reply", NO_READER),
    ("a message to a thread appears there", NO_READER),
    ("a deleted thread does not make its chat dead", NO_READER),
    ("an oversized text is refused as too long", NO_READER),
    ("an edit replaces the text, and repeating it succeeds", NO_READER),
    ("an edit of a deleted message is refused", NO_READER),
    ("a preview of any length can be sent and replaced", NO_READER),
    ("a part of the maximum edit size can replace its preview", NO_READER),
    ("a deletion can be repeated", NO_READER),
    ("the typing indicator does not fail", NO_READER),
    ("a pressed button is received", NO_READER),
    ("one idempotency key creates one message", NO_READER),
    ("a forbidden chat is refused and dead", NO_READER),
    ("a missing chat is refused and dead", NO_READER),
    ("a rate limit is retried after the wait", NO_READER),
    ("a server error is retried later", NO_READER),
    ("a lost response is an unknown outcome", NO_READER),
    ("a reset request is an unknown outcome", NO_READER),
    ("a malformed response is an unknown outcome", NO_READER),
    ("a missing response is an unknown outcome", NO_READER),
    ("a refused connection sends nothing", NO_READER),
    ("bad credentials are fatal and give advice", NO_READER),
    ("a status reaction is set, replaced and cleared", NO_READER),
    ("a file arrives complete, with name and caption", NO_READER),
    ("a lost response to a file is an unknown outcome", NO_READER),
    ("a chat that forbids files accepts texts", NO_READER),
    ("a file removed after the policy check is sent", NO_READER),
    ("an attachment is downloaded completely", NO_FILES),
    ("an oversized attachment is refused despite its claimed size", NO_FILES),
    ("an attachment at a private address is refused", NO_FILES),
    ("a failed download says whether to retry", NO_FILES),
];

struct WebhookPlatform {
    caller: Arc<FakeCaller>,
    adapter: Adapter,
}

struct FakeCaller {
    sender: Sender,
    port: u16,
    next: AtomicU64,
    /// Last delivery of each route.
    last: Mutex<[Option<String>; 2]>,
}

pub(crate) fn start(_timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let port = petasos_fakes::port::free();
    let sender = Sender::start(port);
    boxed(Arc::new(FakeCaller { sender, port, next: AtomicU64::new(1), last: Mutex::default() }))
}

fn boxed(caller: Arc<FakeCaller>) -> Box<dyn TestPlatform> {
    let route = json!({ "secret": SECRET, "prompt": "{text}" });
    let routes = json!({ "one": route, "two": route });
    let config = Config {
        port: caller.port,
        routes: routes.as_object().expect("a section").clone(),
        rate_limit: 10_000,
        ..Config::default()
    };
    Box::new(WebhookPlatform { caller, adapter: Adapter::Webhook(Webhook::new(config).expect("valid")) })
}

fn route(kind: ChatKind) -> &'static str {
    match kind {
        ChatKind::Private => "one",
        ChatKind::Group => "two",
    }
}

impl WebhookPlatform {
    fn deliver(&self, kind: ChatKind, id: &str, text: &str) {
        let delivery = WebhookDelivery::json(format!("/webhooks/{}", route(kind)), &json!({ "text": text }));
        self.caller.sender.send(delivery.header("X-Gitlab-Token", SECRET).header("X-Request-ID", id));
        let mut last = self.caller.last.lock().unwrap_or_else(PoisonError::into_inner);
        last[usize::from(kind == ChatKind::Group)] = Some(id.to_owned());
    }
}

impl TestPlatform for WebhookPlatform {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn TestPlatform> {
        boxed(self.caller.clone())
    }

    fn secrets(&self) -> &'static [&'static str] {
        &[SECRET]
    }

    fn remedy(&self) -> &'static str {
        "WEBHOOK_PORT"
    }

    fn user(&self) -> String {
        // The user of the route that stands for a group.
        "webhook:two".to_owned()
    }

    fn chat(&self, kind: ChatKind) -> String {
        let last = self.caller.last.lock().unwrap_or_else(PoisonError::into_inner);
        let id = last[usize::from(kind == ChatKind::Group)].clone().unwrap_or_default();
        format!("webhook:{}:{id}", route(kind))
    }

    fn receive_message(&self, kind: ChatKind, text: &str) -> String {
        let id = format!("d-{}", self.caller.next.fetch_add(1, Ordering::Relaxed));
        self.deliver(kind, &id, text);
        id
    }

    fn receive_unreadable_event(&self) {
        let malformed = WebhookDelivery {
            body: b"{\"text\": \"sad news".to_vec(),
            ..WebhookDelivery::json("/webhooks/one", &json!({}))
        };
        self.caller.sender.send(malformed.header("X-Gitlab-Token", SECRET));
    }

    fn redeliver(&self, kind: ChatKind, id: &str, text: &str) {
        self.deliver(kind, id, text);
    }

    fn receive_command(&self) {}

    fn thread(&self) -> String {
        String::new()
    }

    fn sent_in_thread(&self, _thread: &str) -> Vec<String> {
        Vec::new()
    }

    fn remove_thread(&self, _thread: &str) {}

    fn receive_file(&self, _text: &str, _name: &str, _content: &[u8], _shape: FileOffer) {}

    fn fail_next_download(&self, _fault: DownloadFault) {}

    fn files(&self, _kind: ChatKind) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn fail_next_file(&self, _fault: SendFault) {}

    fn press_button(&self, _kind: ChatKind, _message: &str, _data: &str) {}

    fn sent_messages(&self, _kind: ChatKind) -> Vec<VisibleMessage> {
        Vec::new()
    }

    fn reactions(&self, _kind: ChatKind, _message: &str) -> Vec<String> {
        Vec::new()
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.caller.sender.pending() == 0
    }

    fn skipped_cases(&self) -> &'static [(&'static str, &'static str)] {
        SKIPPED_CASES
    }

    fn fail_next_send(&self, _fault: SendFault) {}

    fn down(&self) {}

    fn up(&self) {}

    fn silence(&self) {}

    fn end_silence(&self) {}

    fn revoke(&self) {}
}
