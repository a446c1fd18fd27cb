//! Event deliveries to the app: each is sent over one connection, repeated if it is not acknowledged in time or the
//! connection ends, and dropped after three repetitions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

const REPETITIONS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Deliveries {
    all: Vec<EventDelivery>,
    envelopes: u64,
    /// Three seconds at the real Slack.
    pub(crate) ack_timeout: Duration,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self { all: Vec::new(), envelopes: 0, ack_timeout: Duration::from_secs(3) }
    }
}

/// One envelope to deliver.
#[derive(Debug, Clone)]
pub struct EventDelivery {
    pub number: u64,
    /// `events_api`, `slash_commands`, `interactive`, or anything a test wants.
    pub kind: String,
    pub payload: Value,
    pub repeated: u32,
    pub state: DeliveryState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryState {
    Waiting,
    Sent {
        connection: u64,
        envelope: String,
        at: Instant,
    },
    Acked,
    /// Not acknowledged after all repetitions.
    Lost,
}

impl Deliveries {
    pub(crate) fn push(&mut self, kind: &str, payload: Value) -> u64 {
        let number = self.all.len() as u64;
        self.all.push(EventDelivery {
            number,
            kind: kind.to_owned(),
            payload,
            repeated: 0,
            state: DeliveryState::Waiting,
        });
        number
    }

    pub(crate) fn all(&self) -> &[EventDelivery] {
        &self.all
    }

    /// The next envelope for this connection.
    pub(crate) fn next(&mut self, connection: u64, now: Instant) -> Option<String> {
        self.expire(now);
        let delivery = self.all.iter_mut().find(|it| it.state == DeliveryState::Waiting)?;
        self.envelopes += 1;
        let envelope = format!("envelope-{}", self.envelopes);
        delivery.state = DeliveryState::Sent { connection, envelope: envelope.clone(), at: now };
        Some(delivery.frame(&envelope))
    }

    /// When the next delivery expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let sent = |delivery: &EventDelivery| match delivery.state {
            DeliveryState::Sent { at, .. } => Some(at + self.ack_timeout),
            DeliveryState::Waiting | DeliveryState::Acked | DeliveryState::Lost => None,
        };
        self.all.iter().filter_map(sent).min()
    }

    /// Returns the delivery and how long it took. `None`: unknown or too late.
    pub(crate) fn ack(&mut self, envelope: &str, now: Instant) -> Option<(u64, Duration)> {
        self.expire(now);
        self.all.iter_mut().find_map(|delivery| {
            let DeliveryState::Sent { envelope: sent, at, .. } = &delivery.state else { return None };
            let took = (sent == envelope).then(|| now - *at)?;
            delivery.state = DeliveryState::Acked;
            Some((delivery.number, took))
        })
    }

    /// Repeats the deliveries of a connection that ended.
    pub(crate) fn connection_lost(&mut self, connection: u64) {
        for delivery in &mut self.all {
            if matches!(&delivery.state, DeliveryState::Sent { connection: over, .. } if *over == connection)
            {
                delivery.repeat();
            }
        }
    }

    /// Drops all deliveries that are not acknowledged.
    pub(crate) fn drop_unacknowledged(&mut self) {
        for delivery in self.all.iter_mut().filter(|it| it.state != DeliveryState::Acked) {
            delivery.state = DeliveryState::Lost;
        }
    }

    fn expire(&mut self, now: Instant) {
        let ack_timeout = self.ack_timeout;
        for delivery in &mut self.all {
            if matches!(&delivery.state, DeliveryState::Sent { at, .. } if now >= *at + ack_timeout) {
                delivery.repeat();
            }
        }
    }
}

impl EventDelivery {
    fn repeat(&mut self) {
        self.repeated += 1;
        self.state = if self.repeated > REPETITIONS { DeliveryState::Lost } else { DeliveryState::Waiting };
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
    fn repeats_unacknowledged_deliveries_then_drops_them() {
        let mut deliveries = Deliveries::default();
        let number = deliveries.push("events_api", json!({}));
        let mut now = Instant::now();
        for attempt in 0..=REPETITIONS {
            let frame: Value = serde_json::from_str(&deliveries.next(1, now).unwrap()).unwrap();
            assert_eq!(frame["retry_attempt"], attempt);
            assert_eq!(deliveries.next(1, now), None, "not twice at once");
            now += deliveries.ack_timeout;
            let envelope = frame["envelope_id"].as_str().unwrap();
            assert_eq!(deliveries.ack(envelope, now), None, "too late");
        }
        assert_eq!(deliveries.next(1, now), None);
        assert_eq!(deliveries.all()[0].state, DeliveryState::Lost);
        assert_eq!(number, 0);
    }

    #[test]
    fn repeats_deliveries_of_a_lost_connection() {
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
