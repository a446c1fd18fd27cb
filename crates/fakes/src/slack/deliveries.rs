//! What Slack still has to tell the app: sent to one connection, said again when it is not acknowledged in
//! time or its connection is gone, and given up after three repetitions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

const REPETITIONS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Deliveries {
    all: Vec<Delivery>,
    envelopes: u64,
    /// Slack gives three seconds.
    pub(crate) patience: Duration,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self { all: Vec::new(), envelopes: 0, patience: Duration::from_secs(3) }
    }
}

/// One thing to tell, in order of its number.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub number: u64,
    /// `events_api`, `slash_commands`, `interactive`, or anything a test wants.
    pub kind: String,
    pub payload: Value,
    /// How often it was said again.
    pub repeated: u32,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Waiting,
    Sent {
        connection: u64,
        envelope: String,
        at: Instant,
    },
    Acked,
    /// Not acknowledged however often it was said.
    Lost,
}

impl Deliveries {
    pub(crate) fn push(&mut self, kind: &str, payload: Value) -> u64 {
        let number = self.all.len() as u64;
        self.all.push(Delivery {
            number,
            kind: kind.to_owned(),
            payload,
            repeated: 0,
            state: State::Waiting,
        });
        number
    }

    pub(crate) fn all(&self) -> &[Delivery] {
        &self.all
    }

    /// The next envelope for this connection.
    pub(crate) fn next(&mut self, connection: u64, now: Instant) -> Option<String> {
        self.expire(now);
        let delivery = self.all.iter_mut().find(|it| it.state == State::Waiting)?;
        self.envelopes += 1;
        let envelope = format!("envelope-{}", self.envelopes);
        delivery.state = State::Sent { connection, envelope: envelope.clone(), at: now };
        Some(delivery.frame(&envelope))
    }

    /// When somebody should look again.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let sent = |delivery: &Delivery| match delivery.state {
            State::Sent { at, .. } => Some(at + self.patience),
            State::Waiting | State::Acked | State::Lost => None,
        };
        self.all.iter().filter_map(sent).min()
    }

    /// The delivery and how long it took; `None`: unknown or too late.
    pub(crate) fn ack(&mut self, envelope: &str, now: Instant) -> Option<(u64, Duration)> {
        self.expire(now);
        self.all.iter_mut().find_map(|delivery| {
            let State::Sent { envelope: sent, at, .. } = &delivery.state else { return None };
            let took = (sent == envelope).then(|| now - *at)?;
            delivery.state = State::Acked;
            Some((delivery.number, took))
        })
    }

    /// What was on its way over this connection is said again.
    pub(crate) fn connection_lost(&mut self, connection: u64) {
        for delivery in &mut self.all {
            if matches!(&delivery.state, State::Sent { connection: over, .. } if *over == connection) {
                delivery.again();
            }
        }
    }

    /// What was not heard so far is never said again.
    pub(crate) fn give_up(&mut self) {
        for delivery in self.all.iter_mut().filter(|it| it.state != State::Acked) {
            delivery.state = State::Lost;
        }
    }

    fn expire(&mut self, now: Instant) {
        let patience = self.patience;
        for delivery in &mut self.all {
            if matches!(&delivery.state, State::Sent { at, .. } if now >= *at + patience) {
                delivery.again();
            }
        }
    }
}

impl Delivery {
    fn again(&mut self) {
        self.repeated += 1;
        self.state = if self.repeated > REPETITIONS { State::Lost } else { State::Waiting };
    }

    fn frame(&self, envelope: &str) -> String {
        if let Value::String(raw) = &self.payload {
            return raw.replace("$ENVELOPE", envelope);
        }
        let mut frame = json!({
            "envelope_id": envelope, "type": self.kind, "payload": self.payload,
            "accepts_response_payload": self.kind != "events_api",
        });
        if self.kind == "events_api" {
            frame["retry_attempt"] = self.repeated.into();
            frame["retry_reason"] = if self.repeated == 0 { "" } else { "timeout" }.into();
        }
        frame.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_acknowledged_in_time_is_said_again_and_then_given_up() {
        let mut deliveries = Deliveries::default();
        let number = deliveries.push("events_api", json!({}));
        let mut now = Instant::now();
        for attempt in 0..=REPETITIONS {
            let frame: Value = serde_json::from_str(&deliveries.next(1, now).unwrap()).unwrap();
            assert_eq!(frame["retry_attempt"], attempt);
            assert_eq!(deliveries.next(1, now), None, "not twice at once");
            now += deliveries.patience;
            let envelope = frame["envelope_id"].as_str().unwrap();
            assert_eq!(deliveries.ack(envelope, now), None, "too late");
        }
        assert_eq!(deliveries.next(1, now), None);
        assert_eq!(deliveries.all()[0].state, State::Lost);
        assert_eq!(number, 0);
    }

    #[test]
    fn a_lost_connection_gives_back_what_was_on_its_way() {
        let mut deliveries = Deliveries::default();
        deliveries.push("events_api", json!({}));
        let now = Instant::now();
        assert!(deliveries.next(1, now).is_some());
        deliveries.connection_lost(2);
        assert_eq!(deliveries.next(2, now), None);
        deliveries.connection_lost(1);
        let frame: Value = serde_json::from_str(&deliveries.next(2, now).unwrap()).unwrap();
        let took = Duration::from_secs(1);
        let ack = deliveries.ack(frame["envelope_id"].as_str().unwrap(), now + took);
        assert_eq!(ack, Some((0, took)));
    }
}
