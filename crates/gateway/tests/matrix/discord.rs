//! The Discord column.

use std::time::Duration;

use petasos_fakes::discord::{Discord, Fault};
use petasos_platforms::discord::{Config, Discord as Bot};
use petasos_platforms::{Adapter, Secret};
use serde_json::json;

use crate::platform::{Fake, FaultCounter, MatrixPlatform, RequestFilter, eventually, huge, met};
use crate::rows::{AdapterTimeout, In, Out};

const ROOM: u64 = 50;
const USER: u64 = 5;
const IDENTIFY: u64 = 2;
const RESUME: u64 = 6;

struct DiscordStage {
    fake: Discord,
    tally: FaultCounter,
}

pub fn start() -> Box<dyn MatrixPlatform> {
    let fake = Discord::start().expect("a fake");
    fake.add_direct(ROOM);
    Box::new(DiscordStage { fake, tally: FaultCounter::default() })
}

impl DiscordStage {
    fn event(&self, id: u64, text: &str) {
        let author = json!({ "id": USER.to_string(), "username": "user5" });
        let message = json!({
            "id": id.to_string(), "channel_id": ROOM.to_string(), "author": author, "content": text, "type": 0,
        });
        self.fake.push_event("MESSAGE_CREATE", message);
    }

    /// Number of identify and resume requests.
    fn greetings(&self) -> usize {
        self.fake.frames(IDENTIFY).len() + self.fake.frames(RESUME).len()
    }

    /// Injects a fault into the next session start.
    fn begins_badly(&self, fault: Fault) {
        self.fake.on("getGateway").does(fault);
        self.fake.invalidate();
    }
}

impl MatrixPlatform for DiscordStage {
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter> {
        let mut config = Config::new(Secret::new("OTAw.x.secret"));
        config.api_base = self.fake.api_base();
        config.reconnect_base = Duration::from_millis(20);
        config.identify_gap = Duration::ZERO;
        config.request_timeout = patience.request();
        if patience == AdapterTimeout::Short {
            self.fake.set_heartbeat_interval(Duration::from_secs(1));
        }
        vec![Adapter::Discord(Bot::new(config).expect("valid"))]
    }

    fn keyed(&self) -> bool {
        true
    }

    fn send_text(&self, text: &str) {
        self.fake.push_text(ROOM, USER, text);
    }

    fn texts(&self) -> Vec<String> {
        self.fake.texts(ROOM)
    }

    fn out(&self, saying: RequestFilter, fault: Out) -> bool {
        let fault = met!(Fault, fault, {
            TooMany => Fault::too_many(0.7),
            TooManyBare => Fault::status(429, 0, "You are being rate limited."),
            NotWell => Fault::status(500, 0, "500: Internal Server Error"),
            BadGateway => Fault::ProxyError(502),
            Forbidden => Fault::missing_access(),
            NoChat => Fault::status(404, 10003, "Unknown Channel"),
            TooLong => Fault::status(400, 50035, "Invalid Form Body"),
            Gone => Fault::status(404, 10008, "Unknown Message"),
        });
        self.fake.on("*").text_matching(saying).does(fault);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let mut broken = 1;
        match fault {
            In::Twice => {
                let id = self.fake.push_text(ROOM, USER, text);
                self.event(id, text);
            }
            In::OutOfOrder => {
                let id = self.fake.push_text(ROOM, USER, "aside");
                self.event(id - 1, text);
            }
            In::Rubbish => {
                let rubbish = json!({ "id": "nine", "author": 5, "content": "sad news" });
                self.fake.push_event("MESSAGE_CREATE", rubbish);
                self.send_text(text);
            }
            In::Garbage => {
                broken = self.fake.push_frame("{not json");
                self.send_text(text);
            }
            In::NotWell | In::TooMany => {
                broken = 0;
                self.begins_badly(match fault {
                    In::TooMany => Fault::too_many(0.7),
                    _other => Fault::ProxyError(502),
                });
                self.send_text(text);
            }
            In::Cut => {
                broken = self.fake.reset_sockets();
                self.send_text(text);
            }
            In::CutBehind => {
                self.send_text(text);
                broken = self.fake.reset_sockets();
            }
            In::Closed => {
                broken = self.fake.close(4000);
                self.send_text(text);
            }
            In::Moved => {
                broken = self.fake.request_reconnect();
                self.send_text(text);
            }
            In::Over => {
                self.fake.invalidate();
                self.send_text(text);
            }
            In::Down => broken = self.say_while_down(text),
            In::Silent => {
                let before = self.greetings();
                self.fake.silence();
                self.send_text(text);
                eventually("given up", || (self.greetings() > before).then_some(()));
                self.fake.end_silence();
            }
            In::Huge => self.send_text(&huge(1_200_000, text)),
            In::Half | In::AckLost | In::Forged => return false,
        }
        self.tally.add(broken);
        true
    }

    fn fake(&self) -> &dyn Fake {
        &self.fake
    }

    fn tally(&self) -> &FaultCounter {
        &self.tally
    }
}
