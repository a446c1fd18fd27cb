//! Slack's column.

use std::sync::Arc;
use std::time::Duration;

use petasos_fakes::Slack as Fake;
use petasos_fakes::slack::{BOT, Fault, Incoming, State, TEAM, TOKEN};
use petasos_platforms::Adapter;
use petasos_platforms::slack::{Config, Slack};
use serde_json::json;

use crate::peer::{FileTrouble, Peer, Place, Seen, Shape, Signs, Temper, Trouble};

const APP_TOKEN: &str = "xapp-1-A1-2-secret";
const USER: &str = "U7";
const ROOM: &str = "C1";
const DIRECT: &str = "D1";
const BRIEF: Duration = Duration::from_millis(50);

struct Rig {
    fake: Arc<Fake>,
    adapter: Adapter,
    temper: Temper,
}

pub(crate) fn start(temper: Temper) -> Box<dyn Peer> {
    let fake = Fake::start().expect("a fake");
    fake.add_channel(TEAM, ROOM);
    fake.add_channel(TEAM, DIRECT);
    // Real Slack waits three seconds before it says something again.
    fake.set_patience(10 * BRIEF);
    boxed(Arc::new(fake), temper)
}

fn boxed(fake: Arc<Fake>, temper: Temper) -> Box<dyn Peer> {
    let mut config = Config::new(APP_TOKEN, TOKEN);
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    if temper == Temper::Impatient {
        config.request_timeout = 6 * BRIEF;
        (config.hello_timeout, config.ping_interval, config.silence) = (10 * BRIEF, BRIEF, 10 * BRIEF);
    }
    let adapter = Adapter::Slack(Slack::new(config).expect("valid"));
    Box::new(Rig { fake, adapter, temper })
}

fn channel(place: Place) -> &'static str {
    match place {
        Place::Private => DIRECT,
        Place::Group => ROOM,
    }
}

fn fault(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::TooMany => Fault::TooMany(3),
        Trouble::Blocked => Fault::error("not_in_channel"),
        Trouble::NoChat => Fault::error("channel_not_found"),
        Trouble::NoFiles => Fault::error("restricted_action"),
        Trouble::ServerError => Fault::error("service_unavailable"),
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
        &[APP_TOKEN, TOKEN, "secret"]
    }

    fn remedy(&self) -> &'static str {
        "SLACK_BOT_TOKEN"
    }

    fn user(&self) -> String {
        USER.to_owned()
    }

    fn chat(&self, place: Place) -> String {
        channel(place).to_owned()
    }

    fn say(&self, place: Place, text: &str) -> String {
        match place {
            Place::Private => self.fake.push_text(DIRECT, USER, text),
            Place::Group => self.fake.push_text(ROOM, USER, &format!("<@{BOT}> {text}")),
        }
    }

    fn say_command(&self) {
        self.fake.push_command(DIRECT, USER, "/petasos", "status");
    }

    fn thread(&self) -> String {
        self.fake.push_text(ROOM, USER, "a thread begins")
    }

    fn seen_in(&self, thread: &str) -> Vec<String> {
        let seen = self.fake.visible(ROOM).into_iter().filter(|it| it.thread.as_deref() == Some(thread));
        seen.map(|it| it.text).collect()
    }

    fn remove_thread(&self, _thread: &str) {
        self.fake.on("chat.postMessage").does(Fault::error("thread_not_found"));
    }

    fn say_file(&self, text: &str, name: &str, content: &[u8], shape: Shape) {
        let size = if shape == Shape::SaysItIsSmall { 1 } else { content.len() };
        let url = match shape {
            Shape::LeadsTo(url) => self.fake.add_redirect(name, url),
            Shape::Sound | Shape::SaysItIsSmall => self.fake.add_file(name, content.to_vec()),
        };
        let file = json!({ "id": "F1", "name": name, "mimetype": "application/octet-stream", "size": size,
                           "url_private": url });
        let said = Incoming::new(DIRECT, USER, text);
        self.fake.push(said.with(json!({ "subtype": "file_share", "files": [file] })));
    }

    fn download_trouble(&self, trouble: FileTrouble) {
        self.fake.on("download").does(match trouble {
            FileTrouble::Gone => Fault::Status(404),
            FileTrouble::NotWell => Fault::Status(502),
            FileTrouble::Reset => Fault::ResetBefore,
            FileTrouble::CutOff => Fault::HalfBody,
        });
    }

    fn say_rubbish(&self) {
        let event = json!({ "type": "message", "ts": 5, "text": "sad news" });
        self.fake.push_envelope("events_api", json!({ "team_id": TEAM, "event": event }));
        self.fake.push_frame(r#"{"envelope_id":"$ENVELOPE","type":["odd"],"text":"sad news"}"#);
    }

    fn say_again(&self, _place: Place, _id: &str, _text: &str) {
        let last = self.fake.look(|world| world.deliveries().last().cloned()).expect("something was said");
        self.fake.push_envelope(&last.kind, last.payload);
    }

    fn press(&self, place: Place, message: &str, data: &str) {
        self.fake.push_press(channel(place), USER, message, data).expect("the button is there");
    }

    /// An answer is shown in the thread of what it answers.
    fn seen(&self, place: Place) -> Vec<Seen> {
        let seen = self.fake.visible(channel(place)).into_iter();
        seen.map(|it| Seen { id: it.ts, text: it.text, answers: it.thread }).collect()
    }

    /// Slack is told of envelopes, not of places.
    fn marks(&self, place: Place, message: &str) -> Vec<String> {
        self.fake.marks(&self.chat(place), message)
    }

    fn is_confirmed(&self, _cursor: Option<&str>) -> bool {
        self.fake.look(|world| world.deliveries().iter().all(|it| it.state == State::Acked))
    }

    fn signs(&self) -> Option<Signs> {
        let pings = self.fake.look(|world| world.heartbeats().1);
        let seen = usize::try_from(pings).unwrap_or(usize::MAX);
        (self.temper == Temper::Impatient).then_some(Signs { seen, enough: 15 })
    }

    fn files(&self, place: Place) -> Vec<(String, Vec<u8>)> {
        let seen = self.fake.visible(channel(place)).into_iter().flat_map(|it| it.files);
        seen.map(|file| (file.name, file.content.to_vec())).collect()
    }

    fn trouble(&self, trouble: Trouble) {
        self.fake.on("chat.postMessage").does(fault(trouble));
    }

    fn file_trouble(&self, trouble: Trouble) {
        self.fake.on("files.completeUploadExternal").does(fault(trouble));
    }

    fn down(&self) {
        self.fake.down();
    }

    fn up(&self) {
        self.fake.up().expect("the port is ours");
    }

    /// New sockets are not greeted either.
    fn silence(&self) {
        self.fake.on("hello").always().does(Fault::Hang);
        self.fake.silence();
    }

    fn speak(&self) {
        self.fake.clear_faults();
    }

    fn revoke(&self) {
        self.fake.revoke(TOKEN);
    }
}
