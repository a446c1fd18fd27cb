//! The column of webhooks: other programs call us, and the answers go to a chat of Telegram's.

use std::sync::atomic::{AtomicU64, Ordering};

use petasos_core::Platform;
use petasos_fakes::hooks::Delivery;
use petasos_fakes::port;
use petasos_fakes::telegram::Telegram;
use petasos_platforms::Adapter;
use petasos_platforms::webhook::{Config, Targets, Webhook};
use serde_json::json;

use crate::rows::{In, Out, Patience};
use crate::stage::{Fake, Saying, Stage, Tally, huge, post, post_and_leave};
use crate::telegram::{self, CHAT};

const SECRET: &str = "s3cret-of-a-route";

struct Rig {
    telegram: Telegram,
    port: u16,
    next: AtomicU64,
    tally: Tally,
}

pub fn start() -> Box<dyn Stage> {
    let telegram = Telegram::start().expect("a fake");
    Box::new(Rig { telegram, port: port::free(), next: AtomicU64::new(1), tally: Tally::default() })
}

impl Rig {
    fn delivery(&self, text: &str) -> Delivery {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let delivery = Delivery::json("/webhooks/one", &json!({ "text": text }));
        delivery.header("X-Gitlab-Token", SECRET).header("X-Request-ID", format!("d-{id}"))
    }
}

impl Stage for Rig {
    fn adapters(&self, patience: Patience) -> Vec<Adapter> {
        let to = json!({ "chat_id": CHAT.to_string() });
        let route =
            json!({ "secret": SECRET, "prompt": "{text}", "deliver": "telegram", "deliver_extra": to });
        let routes = json!({ "one": route });
        let routes = routes.as_object().expect("a section").clone();
        let targets = Targets([Platform::parse("telegram").expect("known")].into());
        let config = Config { port: self.port, routes, targets, rate_limit: 10_000, ..Config::default() };
        let webhook = Adapter::Webhook(Webhook::new(config).expect("valid"));
        vec![webhook, telegram::adapter(&self.telegram, patience, None)]
    }

    fn keyed(&self) -> bool {
        false
    }

    fn say(&self, text: &str) {
        assert_eq!(post(self.port, &self.delivery(text)), 202);
    }

    fn texts(&self) -> Vec<String> {
        self.telegram.texts(CHAT)
    }

    /// The answers leave as Telegram's.
    fn out(&self, _saying: Saying, _fault: Out) -> bool {
        false
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let said = self.delivery(text);
        match fault {
            In::Twice => assert_eq!([post(self.port, &said), post(self.port, &said)], [202, 200]),
            In::Rubbish | In::Garbage => {
                let body: &[u8] = if fault == In::Rubbish { b"{\"text\": " } else { b"\xff\xfe\x00" };
                let rubbish = Delivery { body: body.to_vec(), ..self.delivery("") };
                assert!((400..500).contains(&post(self.port, &rubbish)));
                assert_eq!(post(self.port, &said), 202);
            }
            In::Half => {
                post_and_leave(self.port, &said, true);
                assert_eq!(post(self.port, &said), 202, "half of it counts for nothing");
            }
            In::AckLost => {
                post_and_leave(self.port, &said, false);
                assert!([200, 202].contains(&post(self.port, &said)));
            }
            In::Forged => {
                let forged = Delivery { headers: Vec::new(), ..self.delivery("aside") };
                assert!((400..500).contains(&post(self.port, &forged)));
                assert_eq!(post(self.port, &said), 202);
            }
            In::Huge => {
                assert_eq!(post(self.port, &self.delivery(&huge(1_200_000, "aside"))), 413);
                assert_eq!(post(self.port, &said), 202);
            }
            // Nobody is there to be lost, and nothing orders deliveries.
            In::OutOfOrder
            | In::NotWell
            | In::TooMany
            | In::Cut
            | In::CutBehind
            | In::Closed
            | In::Moved
            | In::Over
            | In::Down
            | In::Silent => return false,
        }
        self.tally.add(1);
        true
    }

    fn fake(&self) -> &dyn Fake {
        &self.telegram
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
