//! Slack's column.

use std::sync::Arc;
use std::time::Duration;

use petasos_fakes::Slack as Fake;
use petasos_fakes::slack::{BOT, DeliveryState, Fault, Incoming, TEAM, TOKEN};
use petasos_platforms::Adapter;
use petasos_platforms::slack::{Config, Slack};
use serde_json::json;

use super::platform::{
    ChatKind, DownloadFault, FileOffer, LinkActivity, SendFault, TestPlatform, TimeoutProfile, VisibleMessage,
};

const APP_TOKEN: &str = "xapp-1-A1-2-secret";
const USER: &str = "U7";
const CHANNEL: &str = "C1";
const DIRECT: &str = "D1";
const BRIEF: Duration = Duration::from_millis(50);

struct SlackPlatform {
    fake: Arc<Fake>,
    adapter: Adapter,
    timeouts: TimeoutProfile,
}

pub(crate) fn start(timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let fake = Fake::start().expect("a fake");
    fake.add_channel(TEAM, CHANNEL);
    fake.add_channel(TEAM, DIRECT);
    // Real Slack waits three seconds before a redelivery.
    fake.set_ack_timeout(10 * BRIEF);
    boxed(Arc::new(fake), timeouts)
}

fn boxed(fake: Arc<Fake>, timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let mut config = Config::new(APP_TOKEN, TOKEN);
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    if timeouts == TimeoutProfile::Short {
        config.request_timeout = 6 * BRIEF;
        config.hello_timeout = 10 * BRIEF;
        config.ping_interval = BRIEF;
        config.silence = 10 * BRIEF;
    }
    let adapter = Adapter::Slack(Slack::new(config).expect("valid"));
    Box::new(SlackPlatform { fake, adapter, timeouts })
}

fn channel(kind: ChatKind) -> &'static str {
    match kind {
        ChatKind::Private => DIRECT,
        ChatKind::Group => CHANNEL,
    }
}

fn to_fault(fault: SendFault) -> Fault {
    match fault {
        SendFault::TooMany => Fault::too_many(3),
        SendFault::Blocked => Fault::error("not_in_channel"),
        SendFault::NoChat => Fault::error("channel_not_found"),
        SendFault::NoFiles => Fault::error("restricted_action"),
        SendFault::ServerError => Fault::error("service_unavailable"),
        SendFault::Garbage => Fault::Garbage,
        SendFault::Reset => Fault::ResetBefore,
        SendFault::LostAnswer => Fault::ResetAfter,
        SendFault::NoAnswer => Fault::HangAfter,
    }
}

impl TestPlatform for SlackPlatform {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn TestPlatform> {
        boxed(self.fake.clone(), self.timeouts)
    }

    fn secrets(&self) -> &'static [&'static str] {
        &[APP_TOKEN, TOKEN, "secret"]
    }

    fn remedy(&self) -> &'static str {
        "SLACK_BOT_TOKEN"
    }

    fn user(&self) -> String {
        USER.to_owned()
    }

    fn chat(&self, kind: ChatKind) -> String {
        channel(kind).to_owned()
    }

    fn receive_message(&self, kind: ChatKind, text: &str) -> String {
        match kind {
            ChatKind::Private => self.fake.push_text(DIRECT, USER, text),
            ChatKind::Group => self.fake.push_text(CHANNEL, USER, &format!("<@{BOT}> {text}")),
        }
    }

    fn receive_command(&self) {
        self.fake.push_command(DIRECT, USER, "/petasos", "status");
    }

    fn thread(&self) -> String {
        self.fake.push_text(CHANNEL, USER, "a thread begins")
    }

    fn sent_in_thread(&self, thread: &str) -> Vec<String> {
        let seen = self.fake.visible(CHANNEL).into_iter().filter(|it| it.thread.as_deref() == Some(thread));
        seen.map(|it| it.text).collect()
    }

    fn remove_thread(&self, _thread: &str) {
        self.fake.on("chat.postMessage").does(Fault::error("thread_not_found"));
    }

    fn receive_file(&self, text: &str, name: &str, content: &[u8], shape: FileOffer) {
        let size = if shape == FileOffer::UnderstatedSize { 1 } else { content.len() };
        let url = match shape {
            FileOffer::RedirectsTo(url) => self.fake.add_redirect(name, url),
            FileOffer::Valid | FileOffer::UnderstatedSize => self.fake.add_file(name, content.to_vec()),
        };
        let file = json!({ "id": "F1", "name": name, "mimetype": "application/octet-stream", "size": size,
                           "url_private": url });
        let message = Incoming::new(DIRECT, USER, text);
        self.fake.push(message.with(json!({ "subtype": "file_share", "files": [file] })));
    }

    fn fail_next_download(&self, fault: DownloadFault) {
        self.fake.on("download").does(match fault {
            DownloadFault::Gone => Fault::ProxyError(404),
            DownloadFault::ServerError => Fault::ProxyError(502),
            DownloadFault::Reset => Fault::ResetBefore,
            DownloadFault::CutOff => Fault::HalfBody,
        });
    }

    fn receive_unreadable_event(&self) {
        let event = json!({ "type": "message", "ts": 5, "text": "sad news" });
        self.fake.push_envelope("events_api", json!({ "team_id": TEAM, "event": event }));
        self.fake.push_frame(r#"{"envelope_id":"$ENVELOPE","type":["odd"],"text":"sad news"}"#);
    }

    fn redeliver(&self, _place: ChatKind, _id: &str, _text: &str) {
        let last = self.fake.read(|state| state.deliveries().last().cloned()).expect("a delivery");
        self.fake.push_envelope(&last.kind, last.payload);
    }

    fn press_button(&self, kind: ChatKind, message: &str, data: &str) {
        self.fake.push_press(channel(kind), USER, message, data).expect("the button exists");
    }

    /// An answer is in the thread of its question.
    fn sent_messages(&self, kind: ChatKind) -> Vec<VisibleMessage> {
        let seen = self.fake.visible(channel(kind)).into_iter();
        seen.map(|it| VisibleMessage { id: it.ts, text: it.text, answers: it.thread }).collect()
    }

    fn reactions(&self, kind: ChatKind, message: &str) -> Vec<String> {
        self.fake.reactions(&self.chat(kind), message)
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.fake.read(|state| state.deliveries().iter().all(|it| it.state == DeliveryState::Acked))
    }

    fn activity(&self) -> Option<LinkActivity> {
        let pings = self.fake.read(|state| state.heartbeats().1);
        let seen = usize::try_from(pings).unwrap_or(usize::MAX);
        (self.timeouts == TimeoutProfile::Short).then_some(LinkActivity { seen, enough: 15 })
    }

    fn files(&self, kind: ChatKind) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(channel(kind)).into_iter().flat_map(|it| it.files);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn fail_next_send(&self, fault: SendFault) {
        self.fake.on("chat.postMessage").does(to_fault(fault));
    }

    fn fail_next_file(&self, fault: SendFault) {
        self.fake.on("files.completeUploadExternal").does(to_fault(fault));
    }

    fn down(&self) {
        self.fake.down();
    }

    fn up(&self) {
        self.fake.up().expect("the port is free");
    }

    /// Slack sends no hello over new sockets either.
    fn silence(&self) {
        self.fake.on("hello").always().does(Fault::Hang);
        self.fake.silence();
    }

    fn end_silence(&self) {
        self.fake.clear_faults();
    }

    fn revoke(&self) {
        self.fake.revoke(TOKEN);
    }
}
