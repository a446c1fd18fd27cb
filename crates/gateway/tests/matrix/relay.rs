//! The relay's column.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::link::redial::Policy;
use petasos_fakes::Connector;
use petasos_fakes::connector::{Reply, event};
use petasos_platforms::Adapter;
use petasos_platforms::relay::{Config, Identity, adapters, credentials};
use serde_json::{Value, json};

use crate::rows::{In, Out, Patience};
use crate::stage::{Fake, Saying, Stage, Tally, huge};

const CHAT: &str = "direct";

struct Rig {
    fake: Connector,
    next: AtomicU64,
    tally: Tally,
}

pub fn start() -> Box<dyn Stage> {
    let fake = Connector::start().expect("a fake");
    fake.describe("discord", |it| {
        it["request_memory"] = json!(600);
        it["supported_ops"] = json!(["send", "edit", "delete", "typing"]);
    });
    Box::new(Rig { fake, next: AtomicU64::new(1), tally: Tally::default() })
}

fn said(id: u64, text: &str) -> Value {
    event("discord", CHAT, "dm", text, Some(&format!("m{id}")))
}

impl Rig {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Stage for Rig {
    fn adapters(&self, patience: Patience) -> Vec<Adapter> {
        let mut config = Config::new(self.fake.url());
        let platform = Platform::parse("discord").expect("known");
        config.identities = vec![Identity { platform, bot_id: "app".into() }];
        config.credentials = Some(credentials("gw-1", "s3cret-of-a-gateway"));
        config.terms.redial = Policy::relay(Duration::from_millis(20), Duration::from_millis(100));
        config.answer_timeout = patience.request();
        if patience == Patience::Short {
            (config.ping_every, config.silence) = (Duration::from_millis(500), Duration::from_secs(3));
        }
        adapters(config).expect("valid").into_iter().map(Adapter::Relay).collect()
    }

    fn keyed(&self) -> bool {
        true
    }

    fn say(&self, text: &str) {
        self.fake.push(said(self.number(), text));
    }

    fn texts(&self) -> Vec<String> {
        self.fake.visible(CHAT).into_iter().map(|message| message.text).collect()
    }

    fn out(&self, saying: Saying, fault: Out) -> bool {
        let failed = |code: &str| json!({ "success": false, "error": code, "code": code });
        let reply = match fault {
            Out::TooMany => {
                let mut result = failed("rate_limited");
                result["retry_after"] = json!(1);
                Reply::Result(result)
            }
            Out::TooManyBare => Reply::Result(failed("rate_limited")),
            Out::NotWell => Reply::Result(failed("transient")),
            Out::ResetBefore => Reply::Cut,
            Out::ResetAfter => Reply::Drop,
            Out::Hang => Reply::Ignored,
            Out::HangAfter => Reply::Nothing,
            Out::Garbage => Reply::Garbled,
            Out::Slow => Reply::After(Duration::from_millis(700)),
            Out::Forbidden => Reply::Result(failed("forbidden")),
            Out::NoChat => Reply::Result(failed("chat_not_found")),
            Out::TooLong => Reply::Result(failed("too_long")),
            Out::Gone => Reply::Result(failed("not_found")),
            Out::BadGateway | Out::Half => return false,
        };
        self.fake.trouble_saying(saying, reply);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let mut broken = 1;
        let id = self.number();
        match fault {
            In::Twice => {
                self.fake.push(said(id, text));
                self.fake.push(said(id, text));
            }
            In::OutOfOrder => {
                self.say("aside");
                self.fake.push(said(id, text));
            }
            In::Rubbish => {
                self.fake.push(json!({ "text": "sad news", "source": "nowhere" }));
                self.say(text);
            }
            In::Garbage => {
                self.fake.say("{not json\n");
                self.say(text);
            }
            In::NotWell => {
                self.fake.refuse(1, 1013, "try again later");
                broken = self.fake.cut();
                self.say(text);
            }
            In::Cut => {
                broken = self.fake.cut();
                self.say(text);
            }
            In::CutBehind => {
                self.say(text);
                broken = self.fake.cut();
            }
            In::Closed => {
                broken = self.fake.read(petasos_fakes::connector::World::open);
                self.fake.close(1011, "");
                self.say(text);
            }
            In::Moved => {
                broken = self.fake.read(petasos_fakes::connector::World::open);
                self.fake.close(1012, "service restart");
                self.say(text);
            }
            In::Over => {
                self.fake.drop_behind_descriptor(1);
                broken = self.fake.cut();
                self.say(text);
            }
            In::Down => broken = self.say_while_down(text),
            In::Silent => {
                broken = self.fake.read(petasos_fakes::connector::World::open);
                self.fake.silence();
                self.say(text);
            }
            // Lines end at 1 MiB.
            In::Huge => self.say(&huge(1_000_000, text)),
            In::Half | In::TooMany | In::AckLost | In::Forged => return false,
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
