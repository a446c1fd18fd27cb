//! Discord's column.

use std::sync::Arc;
use std::time::Duration;

use petasos_fakes::Discord as Fake;
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::discord::{Config, Discord};
use petasos_platforms::{Adapter, Secret};
use serde_json::{Value, json};

use super::platform::{
    ChatKind, DownloadFault, FileOffer, LinkActivity, SendFault, TestPlatform, TimeoutProfile, VisibleMessage,
};

/// Begins with 900, the fake bot's id, in base 64.
const TOKEN: &str = "OTAw.x.secret";
const GUILD: u64 = 1;
const USER: u64 = 5;
const CHANNEL: u64 = 70;
const DM: u64 = 50;
const THREAD: u64 = 71;
const HEARTBEAT: u64 = 1;
const BEAT: Duration = Duration::from_millis(100);

struct DiscordPlatform {
    fake: Arc<Fake>,
    adapter: Adapter,
    timeouts: TimeoutProfile,
}

pub(crate) fn start(timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let fake = Fake::start().expect("a fake");
    fake.add_guild(GUILD);
    fake.add_channel(GUILD, CHANNEL, "general");
    fake.add_direct(DM);
    fake.set_heartbeat_interval(BEAT);
    boxed(Arc::new(fake), timeouts)
}

fn boxed(fake: Arc<Fake>, timeouts: TimeoutProfile) -> Box<dyn TestPlatform> {
    let mut config = Config::new(Secret::new(TOKEN));
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.identify_gap = Duration::ZERO;
    config.auto_thread = false;
    if timeouts == TimeoutProfile::Short {
        config.request_timeout = Duration::from_millis(300);
        config.connect_timeout = Duration::from_millis(500);
    }
    let adapter = Adapter::Discord(Discord::new(config).expect("valid"));
    Box::new(DiscordPlatform { fake, adapter, timeouts })
}

fn channel(kind: ChatKind) -> u64 {
    match kind {
        ChatKind::Private => DM,
        ChatKind::Group => CHANNEL,
    }
}

/// The cursor's sequence number.
fn sequence(cursor: Option<&str>) -> Option<u64> {
    let cursor: Value = serde_json::from_str(cursor?).ok()?;
    cursor["session"]["sequence"].as_u64()
}

fn service_fault(fault: SendFault) -> Fault {
    match fault {
        SendFault::TooMany => Fault::too_many(0.5),
        SendFault::Blocked => Fault::missing_access(),
        SendFault::NoChat => Fault::status(404, 10003, "Unknown Channel"),
        SendFault::NoFiles => Fault::status(403, 50013, "Missing Permissions"),
        SendFault::ServerError => Fault::status(500, 0, "500: Internal Server Error"),
        SendFault::Garbage => Fault::Garbage,
        SendFault::Reset => Fault::ResetBefore,
        SendFault::LostAnswer => Fault::ResetAfter,
        SendFault::NoAnswer => Fault::HangAfter,
    }
}

impl TestPlatform for DiscordPlatform {
    fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    fn restarted(&self) -> Box<dyn TestPlatform> {
        boxed(self.fake.clone(), self.timeouts)
    }

    fn secrets(&self) -> &'static [&'static str] {
        &[TOKEN, "secret"]
    }

    fn remedy(&self) -> &'static str {
        "DISCORD_BOT_TOKEN"
    }

    fn user(&self) -> String {
        USER.to_string()
    }

    fn chat(&self, kind: ChatKind) -> String {
        channel(kind).to_string()
    }

    fn receive_message(&self, kind: ChatKind, text: &str) -> String {
        let incoming = Incoming::text(channel(kind), USER, text);
        let incoming = match kind {
            ChatKind::Private => incoming,
            ChatKind::Group => incoming.mentioning_bot(),
        };
        self.fake.push(incoming).to_string()
    }

    fn receive_command(&self) {
        self.fake.push_command(DM, USER, "status", &[]);
    }

    fn thread(&self) -> String {
        self.fake.add_thread(GUILD, CHANNEL, THREAD, "a thread");
        THREAD.to_string()
    }

    fn sent_in_thread(&self, thread: &str) -> Vec<String> {
        self.fake.texts(thread.parse().expect("a number"))
    }

    fn remove_thread(&self, _thread: &str) {
        self.fake.on("createMessage").does(Fault::status(404, 10003, "Unknown Channel"));
    }

    fn receive_file(&self, text: &str, name: &str, content: &[u8], shape: FileOffer) {
        let size = if shape == FileOffer::UnderstatedSize { 1 } else { content.len() };
        let url = match shape {
            FileOffer::RedirectsTo(url) => self.fake.add_redirect(name, url),
            FileOffer::Valid | FileOffer::UnderstatedSize => self.fake.add_file(name, content.to_vec()),
        };
        let incoming = Incoming::text(channel(ChatKind::Private), USER, text);
        self.fake.push(incoming.attach_at(name, "application/octet-stream", size, &url));
    }

    fn fail_next_download(&self, fault: DownloadFault) {
        self.fake.on("download").does(match fault {
            DownloadFault::Gone => Fault::status(404, 0, "404: Not Found"),
            DownloadFault::ServerError => Fault::status(502, 0, "502: Bad Gateway"),
            DownloadFault::Reset => Fault::ResetBefore,
            DownloadFault::CutOff => Fault::HalfBody,
        });
    }

    fn receive_unreadable_event(&self) {
        self.fake.push_event("MESSAGE_CREATE", json!({ "id": "nine", "author": 5, "content": "sad news" }));
        self.fake.push_frame("{not json, sad news");
    }

    fn redeliver(&self, kind: ChatKind, id: &str, text: &str) {
        let author = json!({ "id": USER.to_string(), "username": "user5" });
        let message = json!({
            "id": id, "channel_id": channel(kind).to_string(), "author": author, "content": text, "type": 0,
        });
        self.fake.push_event("MESSAGE_CREATE", message);
    }

    fn press_button(&self, kind: ChatKind, message: &str, data: &str) {
        self.fake.push_button(channel(kind), USER, message.parse().expect("a number"), data);
    }

    fn sent_messages(&self, kind: ChatKind) -> Vec<VisibleMessage> {
        let seen = self.fake.visible(channel(kind)).into_iter();
        seen.map(|it| VisibleMessage {
            id: it.id.to_string(),
            text: it.content,
            answers: it.reply_to.map(|id| id.to_string()),
        })
        .collect()
    }

    fn reactions(&self, kind: ChatKind, message: &str) -> Vec<String> {
        let of = (channel(kind), message.parse().expect("a number"));
        let all = self.fake.reactions().into_iter();
        all.filter(|(channel, id, _)| (*channel, *id) == of).map(|(_, _, emoji)| emoji).collect()
    }

    /// READY is event 1, the guild event 2; later messages are live.
    fn is_settled(&self, cursor: Option<&str>) -> bool {
        sequence(cursor) >= Some(2)
    }

    fn is_confirmed(&self, cursor: Option<&str>) -> bool {
        let health_log =
            self.fake.frames(HEARTBEAT).iter().filter_map(|heartbeat| heartbeat.data.as_u64()).max();
        sequence(cursor).is_some() && health_log >= sequence(cursor)
    }

    fn activity(&self) -> Option<LinkActivity> {
        Some(LinkActivity { seen: self.fake.frames(HEARTBEAT).len(), enough: 8 })
    }

    fn files(&self, kind: ChatKind) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(channel(kind)).into_iter().flat_map(|it| it.files);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn fail_next_send(&self, fault: SendFault) {
        self.fake.on("createMessage").does(service_fault(fault));
    }

    fn fail_next_file(&self, fault: SendFault) {
        self.fake.on("createMessage").does(service_fault(fault));
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

    fn end_silence(&self) {
        self.fake.end_silence();
    }

    fn revoke(&self) {
        self.fake.expect_token("other");
        self.fake.close(4004);
    }
}
