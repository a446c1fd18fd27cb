//! Slack's column.

use std::time::Duration;

use petasos_fakes::slack::{Fault, Slack, TEAM, TOKEN, World};
use petasos_platforms::Adapter;
use petasos_platforms::slack::{Config, Slack as Bot};
use serde_json::json;

use crate::rows::{In, Out, Patience};
use crate::stage::{Fake, Saying, Stage, Tally, huge, met};

const DIRECT: &str = "D1";
const USER: &str = "U7";

struct Rig {
    fake: Slack,
    tally: Tally,
}

pub fn start() -> Box<dyn Stage> {
    let fake = Slack::start().expect("a fake");
    fake.add_channel(TEAM, DIRECT);
    Box::new(Rig { fake, tally: Tally::default() })
}

impl Rig {
    /// The last delivery once more, changed.
    fn again(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let last = self.fake.look(|world| world.deliveries().last().cloned()).expect("something was said");
        let mut payload = last.payload;
        change(&mut payload["event"]);
        self.fake.push_envelope(&last.kind, payload);
    }

    fn begins_badly(&self, fault: Fault) {
        self.fake.on("apps.connections.open").does(fault);
        self.fake.close_sockets();
    }
}

impl Stage for Rig {
    fn adapters(&self, patience: Patience) -> Vec<Adapter> {
        let mut config = Config::new("xapp-1-A1-2-secret", TOKEN);
        config.api_base = self.fake.api_base();
        config.reconnect_base = Duration::from_millis(20);
        config.request_timeout = patience.request();
        if patience == Patience::Short {
            (config.ping_interval, config.silence) = (Duration::from_millis(500), Duration::from_secs(3));
        }
        vec![Adapter::Slack(Bot::new(config).expect("valid"))]
    }

    fn keyed(&self) -> bool {
        false
    }

    fn say(&self, text: &str) {
        self.fake.push_text(DIRECT, USER, text);
    }

    fn texts(&self) -> Vec<String> {
        self.fake.texts(DIRECT)
    }

    fn out(&self, saying: Saying, fault: Out) -> bool {
        let fault = met!(Fault, fault, {
            TooMany => Fault::TooMany(1),
            TooManyBare => Fault::error("ratelimited"),
            NotWell => Fault::error("service_unavailable"),
            BadGateway => Fault::Status(502),
            Forbidden => Fault::error("not_in_channel"),
            NoChat => Fault::error("channel_not_found"),
            TooLong => Fault::error("msg_too_long"),
            Gone => Fault::error("message_not_found"),
        });
        self.fake.on("*").saying(saying).does(fault);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let mut broken = 1;
        match fault {
            In::Twice => {
                self.say(text);
                self.again(|_| ());
            }
            In::OutOfOrder => {
                self.say("aside");
                self.again(|event| {
                    let ts: f64 = event["ts"].as_str().and_then(|ts| ts.parse().ok()).expect("a moment");
                    event["ts"] = json!(format!("{:.6}", ts - 60.0));
                    event["text"] = json!(text);
                    event.as_object_mut().expect("an event").remove("client_msg_id");
                });
            }
            In::Rubbish => {
                let event = json!({ "type": "message", "ts": 5, "text": "sad news" });
                self.fake.push_envelope("events_api", json!({ "team_id": TEAM, "event": event }));
                self.say(text);
            }
            In::Garbage => {
                self.fake.push_frame("{odd");
                self.say(text);
            }
            In::NotWell | In::TooMany => {
                // Counted by the fake when it strikes.
                broken = 0;
                self.begins_badly(match fault {
                    In::TooMany => Fault::TooMany(1),
                    _other => Fault::Status(502),
                });
                self.say(text);
            }
            In::Cut => {
                broken = self.fake.reset_sockets();
                self.say(text);
            }
            In::CutBehind => {
                self.say(text);
                broken = self.fake.reset_sockets();
            }
            In::Closed => {
                broken = self.fake.close_sockets();
                self.say(text);
            }
            In::Moved => {
                broken = self.fake.look(World::open_sockets);
                self.fake.announce_disconnect("refresh_requested");
                self.say(text);
                self.fake.close_leaving();
            }
            In::Down => broken = self.say_while_down(text),
            In::Silent => {
                broken = self.fake.look(World::open_sockets);
                self.fake.silence();
                self.say(text);
            }
            In::Huge => self.say(&huge(1_200_000, text)),
            In::Half | In::Over | In::AckLost | In::Forged => return false,
        }
        self.tally.add(broken);
        true
    }

    fn fake(&self) -> &dyn Fake {
        &self.fake
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
