//! The Slack column.

use std::time::Duration;

use petasos_fakes::slack::{Fault, Slack, State, TEAM, TOKEN};
use petasos_platforms::Adapter;
use petasos_platforms::slack::{Config, Slack as Bot};
use serde_json::json;

use crate::platform::{Fake, FaultCounter, MatrixPlatform, RequestFilter, huge, met};
use crate::rows::{AdapterTimeout, In, Out};

const DIRECT: &str = "D1";
const USER: &str = "U7";

struct SlackStage {
    fake: Slack,
    tally: FaultCounter,
}

pub fn start() -> Box<dyn MatrixPlatform> {
    let fake = Slack::start().expect("a fake");
    fake.add_channel(TEAM, DIRECT);
    Box::new(SlackStage { fake, tally: FaultCounter::default() })
}

impl SlackStage {
    fn again(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let last = self.fake.read(|world| world.deliveries().last().cloned()).expect("a delivery");
        let mut payload = last.payload;
        change(&mut payload["event"]);
        self.fake.push_envelope(&last.kind, payload);
    }

    fn begins_badly(&self, fault: Fault) {
        self.fake.on("apps.connections.open").does(fault);
        self.fake.close_sockets();
    }
}

impl MatrixPlatform for SlackStage {
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter> {
        let mut config = Config::new("xapp-1-A1-2-secret", TOKEN);
        config.api_base = self.fake.api_base();
        config.reconnect_base = Duration::from_millis(20);
        config.request_timeout = patience.request();
        if patience == AdapterTimeout::Short {
            (config.ping_interval, config.silence) = (Duration::from_millis(500), Duration::from_secs(3));
        }
        vec![Adapter::Slack(Bot::new(config).expect("valid"))]
    }

    fn keyed(&self) -> bool {
        false
    }

    fn send_text(&self, text: &str) {
        self.fake.push_text(DIRECT, USER, text);
    }

    fn texts(&self) -> Vec<String> {
        self.fake.texts(DIRECT)
    }

    fn out(&self, saying: RequestFilter, fault: Out) -> bool {
        let fault = met!(Fault, fault, {
            TooMany => Fault::too_many(1),
            TooManyBare => Fault::error("ratelimited"),
            NotWell => Fault::error("service_unavailable"),
            BadGateway => Fault::ProxyError(502),
            Forbidden => Fault::error("not_in_channel"),
            NoChat => Fault::error("channel_not_found"),
            TooLong => Fault::error("msg_too_long"),
            Gone => Fault::error("message_not_found"),
        });
        self.fake.on("*").text_matching(saying).does(fault);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let mut broken = 1;
        match fault {
            In::Twice => {
                self.send_text(text);
                self.again(|_| ());
            }
            In::OutOfOrder => {
                self.send_text("aside");
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
                self.send_text(text);
            }
            In::Garbage => {
                self.fake.push_frame("{odd");
                self.send_text(text);
            }
            In::NotWell | In::TooMany => {
                broken = 0;
                self.begins_badly(match fault {
                    In::TooMany => Fault::too_many(1),
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
                broken = self.fake.close_sockets();
                self.send_text(text);
            }
            In::Moved => {
                broken = self.fake.read(State::open_sockets);
                self.fake.announce_disconnect("refresh_requested");
                self.send_text(text);
                self.fake.close_leaving();
            }
            In::Down => broken = self.say_while_down(text),
            In::Silent => {
                broken = self.fake.read(State::open_sockets);
                self.fake.silence();
                self.send_text(text);
            }
            In::Huge => self.send_text(&huge(1_200_000, text)),
            In::Half | In::Over | In::AckLost | In::Forged => return false,
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
