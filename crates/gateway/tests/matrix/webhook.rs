//! The webhook column: other programs call the gateway, and the answers go to a Telegram chat.

use std::sync::atomic::{AtomicU64, Ordering};

use petasos_core::Platform;
use petasos_fakes::hooks::WebhookDelivery;
use petasos_fakes::port;
use petasos_fakes::telegram::Telegram;
use petasos_platforms::Adapter;
use petasos_platforms::webhook::{Config, Targets, Webhook};
use serde_json::json;

use crate::platform::{Fake, FaultCounter, MatrixPlatform, RequestFilter, huge, post, post_and_leave};
use crate::rows::{AdapterTimeout, In, Out};
use crate::telegram::{self, CHAT};

const SECRET: &str = "s3cret-of-a-route";

struct WebhookStage {
    telegram: Telegram,
    port: u16,
    next: AtomicU64,
    tally: FaultCounter,
}

pub fn start() -> Box<dyn MatrixPlatform> {
    let telegram = Telegram::start().expect("a fake");
    Box::new(WebhookStage {
        telegram,
        port: port::free(),
        next: AtomicU64::new(1),
        tally: FaultCounter::default(),
    })
}

impl WebhookStage {
    fn delivery(&self, text: &str) -> WebhookDelivery {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let delivery = WebhookDelivery::json("/webhooks/one", &json!({ "text": text }));
        delivery.header("X-Gitlab-Token", SECRET).header("X-Request-ID", format!("d-{id}"))
    }
}

impl MatrixPlatform for WebhookStage {
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter> {
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

    fn send_text(&self, text: &str) {
        assert_eq!(post(self.port, &self.delivery(text)), 202);
    }

    fn texts(&self) -> Vec<String> {
        self.telegram.texts(CHAT)
    }

    /// Answers are sent through Telegram.
    fn out(&self, _saying: RequestFilter, _fault: Out) -> bool {
        false
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        let delivery = self.delivery(text);
        match fault {
            In::Twice => assert_eq!([post(self.port, &delivery), post(self.port, &delivery)], [202, 200]),
            In::Rubbish | In::Garbage => {
                let body: &[u8] = if fault == In::Rubbish { b"{\"text\": " } else { b"\xff\xfe\x00" };
                let rubbish = WebhookDelivery { body: body.to_vec(), ..self.delivery("") };
                assert!((400..500).contains(&post(self.port, &rubbish)));
                assert_eq!(post(self.port, &delivery), 202);
            }
            In::Half => {
                post_and_leave(self.port, &delivery, true);
                assert_eq!(post(self.port, &delivery), 202, "half a body is not accepted");
            }
            In::AckLost => {
                post_and_leave(self.port, &delivery, false);
                assert!([200, 202].contains(&post(self.port, &delivery)));
            }
            In::Forged => {
                let forged = WebhookDelivery { headers: Vec::new(), ..self.delivery("aside") };
                assert!((400..500).contains(&post(self.port, &forged)));
                assert_eq!(post(self.port, &delivery), 202);
            }
            In::Huge => {
                assert_eq!(post(self.port, &self.delivery(&huge(1_200_000, "aside"))), 413);
                assert_eq!(post(self.port, &delivery), 202);
            }
            // There is no connection to lose and no order of deliveries.
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

    fn tally(&self) -> &FaultCounter {
        &self.tally
    }
}
