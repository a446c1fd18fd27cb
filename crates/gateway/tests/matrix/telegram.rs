//! The Telegram columns: long polling and webhook.

use petasos_fakes::hooks::WebhookDelivery;
use petasos_fakes::port;
use petasos_fakes::telegram::{Fault, Telegram};
use petasos_platforms::telegram::{Config, Telegram as Bot, WebhookConfig};
use petasos_platforms::{Adapter, Secret};
use serde_json::{Value, json};
use std::time::Duration;

use crate::platform::{
    Fake, FaultCounter, MatrixPlatform, RequestFilter, eventually, huge, met, post, post_and_leave,
};
use crate::rows::{AdapterTimeout, In, Out};

pub const CHAT: i64 = 7;
const SECRET: &str = "s3cret_-";

struct TelegramStage {
    fake: Telegram,
    /// Port of the webhook listener, if there is one.
    port: Option<u16>,
    tally: FaultCounter,
}

pub fn polled() -> Box<dyn MatrixPlatform> {
    Box::new(TelegramStage {
        fake: Telegram::start().expect("a fake"),
        port: None,
        tally: FaultCounter::default(),
    })
}

pub fn called() -> Box<dyn MatrixPlatform> {
    let port = Some(port::free());
    Box::new(TelegramStage { fake: Telegram::start().expect("a fake"), port, tally: FaultCounter::default() })
}

pub fn adapter(fake: &Telegram, patience: AdapterTimeout, webhook: Option<WebhookConfig>) -> Adapter {
    let mut config = Config::new(Secret::new("123:abc"));
    config.base_url = format!("{}/bot", fake.url());
    config.poll_backoff_base = Duration::from_millis(50);
    config.request_timeout = patience.request();
    config.webhook = webhook;
    if patience == AdapterTimeout::Short {
        (config.poll_timeout, config.poll_grace) = (Duration::from_secs(1), Duration::from_secs(2));
    }
    Adapter::Telegram(Bot::new(config).expect("valid"))
}

pub fn meets(fake: &Telegram, saying: RequestFilter, fault: Out) {
    let fault = met!(Fault, fault, {
        TooMany => Fault::too_many(1),
        TooManyBare => Fault::status(429, "Too Many Requests"),
        NotWell => Fault::status(500, "Internal Server Error"),
        BadGateway => Fault::ProxyError(502),
        Forbidden => Fault::blocked(),
        NoChat => Fault::status(400, "Bad Request: chat not found"),
        TooLong => Fault::status(400, "Bad Request: message is too long"),
        Gone => Fault::status(400, "Bad Request: message to edit not found"),
    });
    fake.on("*").text_matching(saying).does(fault);
}

fn update(number: i64, text: &str) -> Value {
    let chat = json!({ "id": CHAT, "type": "private" });
    let from = json!({ "id": CHAT, "is_bot": false, "first_name": "A" });
    let message = json!({ "message_id": 1000 + number, "date": 1, "chat": chat, "from": from, "text": text });
    json!({ "update_id": number, "message": message })
}

impl TelegramStage {
    /// Sends an irrelevant update; returns its number.
    fn nudge(&self) -> i64 {
        let mut nothing = update(0, "");
        nothing.as_object_mut().expect("an object").remove("update_id");
        nothing["message"].as_object_mut().expect("an object").remove("text");
        self.fake.push_update(nothing)
    }

    /// Injects a fault into the next poll and waits until it is hit.
    fn poll_meets(&self, fault: Fault) {
        let before = self.fake.faults_applied();
        self.fake.on("getUpdates").does(fault);
        // New rules do not affect the poll in flight.
        self.nudge();
        eventually("polled", || (self.fake.faults_applied() > before).then_some(()));
    }

    fn polled(&self, fault: In, text: &str) -> bool {
        match fault {
            In::Twice => self.fake.on("getUpdates").does(Fault::duplicate_updates()),
            In::OutOfOrder => {
                self.poll_meets(Fault::Delay(Duration::from_millis(500)));
                let last = self.nudge();
                self.fake.push_update(update(last + 2, "aside"));
                self.fake.push_update(update(last + 1, text));
                return true;
            }
            In::Garbage => self.poll_meets(Fault::Garbage),
            In::Half => self.poll_meets(Fault::HalfBody),
            In::NotWell => self.poll_meets(Fault::status(502, "Bad Gateway")),
            In::TooMany => self.poll_meets(Fault::too_many(1)),
            In::Moved => {
                self.poll_meets(Fault::status(409, "Conflict: terminated by other getUpdates request"));
            }
            In::Silent => self.poll_meets(Fault::Hang),
            // The next poll acknowledges the update.
            In::AckLost => self.fake.on("getUpdates").does(Fault::ResetBefore),
            In::Rubbish
            | In::Cut
            | In::CutBehind
            | In::Closed
            | In::Over
            | In::Down
            | In::Huge
            | In::Forged => return false,
        }
        self.send_text(text);
        true
    }

    fn delivery(&self, update: &Value) -> WebhookDelivery {
        WebhookDelivery::json("/tg/hook", update).header("X-Telegram-Bot-Api-Secret-Token", SECRET)
    }

    fn called(&self, port: u16, fault: In, text: &str) -> bool {
        let now = self.nudge() + 10;
        let later = self.nudge() + 11;
        let delivery = self.delivery(&update(now, text));
        match fault {
            In::Twice => assert_eq!([post(port, &delivery), post(port, &delivery)], [200, 200]),
            In::OutOfOrder => {
                let aside = self.delivery(&update(later, "aside"));
                assert_eq!([post(port, &aside), post(port, &delivery)], [200, 200]);
            }
            In::Garbage => {
                let rubbish = WebhookDelivery { body: b"<html>\xff".to_vec(), ..delivery.clone() };
                post(port, &rubbish);
                post(port, &delivery);
            }
            In::Half | In::AckLost => {
                post_and_leave(port, &delivery, fault == In::Half);
                assert_eq!(post(port, &delivery), 200);
            }
            In::Forged => {
                let forged = WebhookDelivery::json("/tg/hook", &update(later, "aside"));
                assert!(post(port, &forged) >= 400);
                post(port, &delivery);
            }
            In::NotWell => {
                self.fake.on("getWebhookInfo").does(Fault::status(502, "Bad Gateway"));
                post(port, &delivery);
                return true;
            }
            In::Rubbish
            | In::TooMany
            | In::Cut
            | In::CutBehind
            | In::Closed
            | In::Moved
            | In::Over
            | In::Down
            | In::Silent
            | In::Huge => return false,
        }
        self.tally.add(1);
        true
    }
}

impl MatrixPlatform for TelegramStage {
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter> {
        let webhook = self.port.map(|port| WebhookConfig {
            secret: Some(Secret::new(SECRET)),
            port,
            check_interval: Duration::from_millis(100),
            ..WebhookConfig::new(format!("http://127.0.0.1:{port}/tg/hook"))
        });
        vec![adapter(&self.fake, patience, webhook)]
    }

    fn keyed(&self) -> bool {
        false
    }

    fn send_text(&self, text: &str) {
        self.fake.push_text(CHAT, CHAT, text);
    }

    fn texts(&self) -> Vec<String> {
        self.fake.texts(CHAT)
    }

    fn out(&self, saying: RequestFilter, fault: Out) -> bool {
        // Outgoing requests are the same for webhook and polling.
        if self.port.is_some() {
            return false;
        }
        meets(&self.fake, saying, fault);
        true
    }

    fn hear(&self, fault: In, text: &str) -> bool {
        match fault {
            In::Rubbish => {
                self.fake.push_update(json!({ "message": { "message_id": "nine", "text": "sad news" } }));
                self.tally.add(1);
                self.send_text(text);
            }
            // A webhook has no standing connection.
            In::Cut | In::CutBehind | In::Down if self.port.is_some() => return false,
            In::Cut => {
                self.tally.add(self.fake.reset_connections());
                self.send_text(text);
            }
            In::CutBehind => {
                self.send_text(text);
                self.tally.add(self.fake.reset_connections());
            }
            In::Down => self.tally.add(self.say_while_down(text)),
            In::Huge => {
                self.tally.add(1);
                // Webhook bodies are limited to 1 MiB.
                let length = if self.port.is_some() { 1_000_000 } else { 1_200_000 };
                self.send_text(&huge(length, text));
            }
            fault => {
                return match self.port {
                    None => self.polled(fault, text),
                    Some(port) => self.called(port, fault, text),
                };
            }
        }
        true
    }

    fn fake(&self) -> &dyn Fake {
        &self.fake
    }

    fn tally(&self) -> &FaultCounter {
        &self.tally
    }
}
