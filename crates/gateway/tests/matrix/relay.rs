//! The relay column.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::link::reconnect::ReconnectPolicy;
use petasos_fakes::Connector;
use petasos_fakes::connector::{OutboundFault, event};
use petasos_platforms::Adapter;
use petasos_platforms::relay::{Config, Identity, adapters, credentials};
use serde_json::{Value, json};

use crate::platform::{Fake, FaultCounter, MatrixPlatform, RequestFilter, huge};
use crate::rows::{AdapterTimeout, In, Out};

const CHAT: &str = "direct";

struct RelayStage {
    fake: Connector,
    next: AtomicU64,
    tally: FaultCounter,
}

pub fn start() -> Box<dyn MatrixPlatform> {
    let fake = Connector::start().expect("a fake");
    fake.describe("discord", |it| {
        it["request_memory"] = json!(600);
        it["supported_ops"] = json!(["send", "edit", "delete", "typing"]);
    });
    Box::new(RelayStage { fake, next: AtomicU64::new(1), tally: FaultCounter::default() })
}

fn message(id: u64, text: &str) -> Value {
    event("discord", CHAT, "dm", text, Some(&format!("m{id}")))
}

impl RelayStage {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl MatrixPlatform for RelayStage {
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter> {
        let mut config = Config::new(self.fake.url());
        let platform = Platform::parse("discord").expect("known");
        config.identities = vec![Identity { platform, bot_id: "app".into() }];
        config.credentials = Some(credentials("gw-1", "s3cret-of-a-gateway"));
        config.terms.redial = ReconnectPolicy::relay(Duration::from_millis(20), Duration::from_millis(100));
        config.answer_timeout = patience.request();
        if patience == AdapterTimeout::Short {
            (config.ping_every, config.silence) = (Duration::from_millis(500), Duration::from_secs(3));
        }
        adapters(config).expect("valid").into_iter().map(Adapter::Relay).collect()
    }

    fn keyed(&self) -> bool {
        true
    }

    fn send_text(&self, text: &str) {
        self.fake.push(message(self.number(), text));
    }

    fn texts(&self) -> Vec<String> {
        self.fake.visible(CHAT).into_iter().map(|message| message.text).collect()
    }

    fn out(&self, saying: RequestFilter, fault: Out) -> bool {
        let failed = |code: &str| json!({ "success": false, "error": code, "code": code });
        let reply = match fault {
            Out::TooMany => {
                let mut result = failed("rate_limited");
                result["retry_after"] = json!(1);
                OutboundFault::Refuse(result)
            }
            Out::TooManyBare => OutboundFault::Refuse(failed("rate_limited")),
            Out::NotWell => OutboundFault::Refuse(failed("transient")),
            Out::ResetBefore => OutboundFault::ResetBefore,
            Out::ResetAfter => OutboundFault::ResetAfter,
            Out::Hang => OutboundFault::Hang,
            Out::HangAfter => OutboundFault::HangAfter,
            Out::Garbage => OutboundFault::Garbage,
            Out::Slow => OutboundFault::DelayAfter(Duration::from_millis(700)),
            Out::Forbidden => OutboundFault::Refuse(failed("forbidden")),
            Out::NoChat => OutboundFault::Refuse(failed("chat_not_found")),
            Out::TooLong => OutboundFault::Refuse(failed("too_long")),
            Out::Gone => OutboundFault::Refuse(failed("not_found")),
            Out::BadGateway | Out::Half => return false,
        };
        self.fake.fail_next_matching(saying, reply);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let mut broken = 1;
        let id = self.number();
        match fault {
            In::Twice => {
                self.fake.push(message(id, text));
                self.fake.push(message(id, text));
            }
            In::OutOfOrder => {
                self.send_text("aside");
                self.fake.push(message(id, text));
            }
            In::Rubbish => {
                self.fake.push(json!({ "text": "sad news", "source": "nowhere" }));
                self.send_text(text);
            }
            In::Garbage => {
                self.fake.send("{not json\n");
                self.send_text(text);
            }
            In::NotWell => {
                self.fake.refuse(1, 1013, "try again later");
                broken = self.fake.reset_connections();
                self.send_text(text);
            }
            In::Cut => {
                broken = self.fake.reset_connections();
                self.send_text(text);
            }
            In::CutBehind => {
                self.send_text(text);
                broken = self.fake.reset_connections();
            }
            In::Closed => {
                broken = self.fake.read(petasos_fakes::connector::State::open);
                self.fake.close(1011, "");
                self.send_text(text);
            }
            In::Moved => {
                broken = self.fake.read(petasos_fakes::connector::State::open);
                self.fake.close(1012, "service restart");
                self.send_text(text);
            }
            In::Over => {
                self.fake.close_after_descriptor(1);
                broken = self.fake.reset_connections();
                self.send_text(text);
            }
            In::Down => broken = self.say_while_down(text),
            In::Silent => {
                broken = self.fake.read(petasos_fakes::connector::State::open);
                self.fake.silence();
                self.send_text(text);
            }
            // Frames are limited to 1 MiB.
            In::Huge => self.send_text(&huge(1_000_000, text)),
            In::Half | In::TooMany | In::AckLost | In::Forged => return false,
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
