//! Discord's column.

use std::sync::Arc;
use std::time::Duration;

use petasos_fakes::Discord as Fake;
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::discord::{Config, Discord};
use petasos_platforms::{Adapter, Secret};
use serde_json::{Value, json};

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Signs, Temper, Trouble};

/// Begins with 900, the fake bot's id, in base 64.
const TOKEN: &str = "OTAw.x.secret";
const GUILD: u64 = 1;
const USER: u64 = 5;
const ROOM: u64 = 70;
const DIRECT: u64 = 50;
const THREAD: u64 = 71;
const HEARTBEAT: u64 = 1;
const BEAT: Duration = Duration::from_millis(100);

struct Rig {
    fake: Arc<Fake>,
    adapter: Adapter,
    temper: Temper,
}

pub(crate) fn start(temper: Temper) -> Box<dyn Peer> {
    let fake = Fake::start().expect("a fake");
    fake.add_guild(GUILD);
    fake.add_channel(GUILD, ROOM, "general");
    fake.add_direct(DIRECT);
    fake.heartbeat_interval(BEAT);
    boxed(Arc::new(fake), temper)
}

fn boxed(fake: Arc<Fake>, temper: Temper) -> Box<dyn Peer> {
    let mut config = Config::new(Secret::new(TOKEN));
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.identify_gap = Duration::ZERO;
    config.auto_thread = false;
    if temper == Temper::Impatient {
        config.request_timeout = Duration::from_millis(300);
        config.connect_timeout = Duration::from_millis(500);
    }
    let adapter = Adapter::Discord(Discord::new(config).expect("valid"));
    Box::new(Rig { fake, adapter, temper })
}

fn channel(place: Place) -> u64 {
    match place {
        Place::Private => DIRECT,
        Place::Group => ROOM,
    }
}

/// How many events of its session a cursor has behind it.
fn sequence(cursor: Option<&str>) -> Option<u64> {
    let cursor: Value = serde_json::from_str(cursor?).ok()?;
    cursor["session"]["sequence"].as_u64()
}

fn fault(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::TooMany => Fault::too_many(0.5),
        Trouble::Blocked => Fault::missing_access(),
        Trouble::NoChat => Fault::status(404, 10003, "Unknown Channel"),
        Trouble::NoFiles => Fault::status(403, 50013, "Missing Permissions"),
        Trouble::ServerError => Fault::status(500, 0, "500: Internal Server Error"),
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
        boxed(self.fake.clone(), self.temper)
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

    fn chat(&self, place: Place) -> String {
        channel(place).to_string()
    }

    fn say(&self, place: Place, text: &str) -> String {
        let said = Incoming::text(channel(place), USER, text);
        let said = match place {
            Place::Private => said,
            Place::Group => said.mentioning_bot(),
        };
        self.fake.push(said).to_string()
    }

    fn say_command(&self) {
        self.fake.push_command(DIRECT, USER, "status", &[]);
    }

    fn thread(&self) -> String {
        self.fake.add_thread(GUILD, ROOM, THREAD, "a thread");
        THREAD.to_string()
    }

    fn seen_in(&self, thread: &str) -> Vec<String> {
        self.fake.texts(thread.parse().expect("a number"))
    }

    fn remove_thread(&self, _thread: &str) {
        self.fake.on("createMessage").does(Fault::status(404, 10003, "Unknown Channel"));
    }

    fn say_file(&self, text: &str, name: &str, content: &[u8], shape: Shape) {
        let size = if shape == Shape::SaysItIsSmall { 1 } else { content.len() };
        let url = match shape {
            Shape::LeadsTo(url) => self.fake.add_redirect(name, url),
            Shape::Sound | Shape::SaysItIsSmall => self.fake.add_file(name, content.to_vec()),
        };
        let said = Incoming::text(channel(Place::Private), USER, text);
        self.fake.push(said.attach_at(name, "application/octet-stream", size, &url));
    }

    fn download_trouble(&self, trouble: FileTrouble) {
        self.fake.on("download").does(match trouble {
            FileTrouble::Gone => Fault::status(404, 0, "404: Not Found"),
            FileTrouble::NotWell => Fault::status(502, 0, "502: Bad Gateway"),
            FileTrouble::Reset => Fault::ResetBefore,
            FileTrouble::CutOff => Fault::HalfBody,
        });
    }

    fn say_rubbish(&self) {
        self.fake.push_event("MESSAGE_CREATE", json!({ "id": "nine", "author": 5, "content": "sad news" }));
        self.fake.push_frame("{not json, sad news");
    }

    fn say_again(&self, place: Place, id: &str, text: &str) {
        let author = json!({ "id": USER.to_string(), "username": "user5" });
        let message = json!({
            "id": id, "channel_id": channel(place).to_string(), "author": author, "content": text, "type": 0,
        });
        self.fake.push_event("MESSAGE_CREATE", message);
    }

    fn press(&self, place: Place, message: &str, data: &str) {
        self.fake.push_button(channel(place), USER, message.parse().expect("a number"), data);
    }

    fn seen(&self, place: Place) -> Vec<Seen> {
        let seen = self.fake.visible(channel(place)).into_iter();
        seen.map(|it| Seen {
            id: it.id.to_string(),
            text: it.content,
            answers: it.reply_to.map(|id| id.to_string()),
        })
        .collect()
    }

    fn marks(&self, place: Place, message: &str) -> Vec<String> {
        let of = (channel(place), message.parse().expect("a number"));
        let all = self.fake.reactions().into_iter();
        all.filter(|(channel, id, _)| (*channel, *id) == of).map(|(_, _, emoji)| emoji).collect()
    }

    /// A greeting is READY, number 1, and the guild, number 2; what was said before is not in it.
    fn is_settled(&self, cursor: Option<&str>) -> bool {
        sequence(cursor) >= Some(2)
    }

    fn is_confirmed(&self, cursor: Option<&str>) -> bool {
        let told = self.fake.heard(HEARTBEAT).iter().filter_map(|beat| beat.data.as_u64()).max();
        sequence(cursor).is_some() && told >= sequence(cursor)
    }

    fn signs(&self) -> Option<Signs> {
        Some(Signs { seen: self.fake.heard(HEARTBEAT).len(), enough: 8 })
    }

    fn files(&self, place: Place) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(channel(place)).into_iter().flat_map(|it| it.files);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn trouble(&self, trouble: Trouble) {
        self.fake.on("createMessage").does(fault(trouble));
    }

    fn file_trouble(&self, trouble: Trouble) {
        self.fake.on("createMessage").does(fault(trouble));
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

    fn speak(&self) {
        self.fake.speak();
    }

    fn revoke(&self) {
        self.fake.expect_token("other");
        self.fake.close(4004);
    }
}
