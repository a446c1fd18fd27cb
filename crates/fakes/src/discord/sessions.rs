//! Gateway sessions: numbered events, who is connected to which, and what is ordered for a connection.
//!
//! Events are written into the log of every session, connected or not; a connection sends what lies behind
//! its own place. That is all RESUME needs.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: HashMap<String, Vec<Event>>,
    connections: HashMap<u64, Connection>,
    opened: u64,
    started: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: Value,
}

#[derive(Debug, Default)]
struct Connection {
    /// Its session and how many of its events were sent.
    place: Option<(String, usize)>,
    orders: VecDeque<Order>,
}

/// What a connection is made to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    /// One text frame, be it JSON or not.
    Say(String),
    Close(u16),
    /// Resets the connection.
    Cut,
}

impl Sessions {
    pub(crate) fn open(&mut self) -> u64 {
        self.opened += 1;
        self.connections.insert(self.opened, Connection::default());
        self.opened
    }

    pub(crate) fn closed(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    pub(crate) fn connected(&self) -> usize {
        self.connections.len()
    }

    /// A fresh session for a connection, which begins with these events.
    pub(crate) fn start(&mut self, connection: u64, events: impl FnOnce(&str) -> Vec<Event>) {
        self.started += 1;
        let id = format!("session{}", self.started);
        self.sessions.insert(id.clone(), events(&id));
        self.attach(connection, id, 0);
    }

    /// Goes on behind `sequence`; false: there is no such session.
    pub(crate) fn resume(&mut self, connection: u64, id: &str, sequence: u64) -> bool {
        let Some(log) = self.sessions.get_mut(id) else { return false };
        let from = usize::try_from(sequence).unwrap_or(usize::MAX);
        if from > log.len() {
            return false;
        }
        log.push(Event { kind: "RESUMED".into(), data: json!({}) });
        self.attach(connection, id.to_owned(), from);
        true
    }

    pub(crate) fn forget(&mut self) {
        self.sessions.clear();
    }

    pub(crate) fn dispatch(&mut self, kind: &str, data: &Value) {
        for log in self.sessions.values_mut() {
            log.push(Event { kind: kind.to_owned(), data: data.clone() });
        }
    }

    /// How many heard it.
    pub(crate) fn order(&mut self, order: &Order) -> usize {
        self.connections.values_mut().map(|it| it.orders.push_back(order.clone())).count()
    }

    pub(crate) fn order_for(&mut self, connection: u64, order: Order) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.orders.push_back(order);
        }
    }

    pub(crate) fn next_order(&mut self, connection: u64) -> Option<Order> {
        self.connections.get_mut(&connection)?.orders.pop_front()
    }

    /// The next event for a connection, with its sequence number.
    pub(crate) fn next_event(&mut self, connection: u64) -> Option<(usize, Event)> {
        let (id, sent) = self.connections.get_mut(&connection)?.place.as_mut()?;
        let event = self.sessions.get(id)?.get(*sent)?.clone();
        *sent += 1;
        Some((*sent, event))
    }

    fn attach(&mut self, connection: u64, id: String, sent: usize) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.place = Some((id, sent));
        }
    }
}
