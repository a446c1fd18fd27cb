//! Gateway sessions: their numbered events, their connections, and the commands for a connection.
//!
//! An event is appended to the log of every session, connected or not. A connection sends the events after its own
//! position, which is all that RESUME needs.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: HashMap<String, Vec<Event>>,
    connections: HashMap<u64, SessionSocket>,
    opened: u64,
    started: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: Value,
}

#[derive(Debug, Default)]
struct SessionSocket {
    /// The session, and how many of its events were sent.
    position: Option<(String, usize)>,
    commands: VecDeque<SocketCommand>,
}

/// A connection's behaviour, set by a test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SocketCommand {
    /// Sends one text frame, JSON or not.
    Send(String),
    Close(u16),
    /// Resets the connection.
    Cut,
}

impl Sessions {
    pub(crate) fn open(&mut self) -> u64 {
        self.opened += 1;
        self.connections.insert(self.opened, SessionSocket::default());
        self.opened
    }

    pub(crate) fn closed(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    pub(crate) fn connected(&self) -> usize {
        self.connections.len()
    }

    /// Starts a session that begins with these events.
    pub(crate) fn start(&mut self, connection: u64, events: impl FnOnce(&str) -> Vec<Event>) {
        self.started += 1;
        let id = format!("session{}", self.started);
        self.sessions.insert(id.clone(), events(&id));
        self.attach(connection, id, 0);
    }

    /// Continues after `sequence`. `false`: there is no such session.
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

    /// Queues the command for every connection. Returns the number of connections.
    pub(crate) fn command_all(&mut self, command: &SocketCommand) -> usize {
        self.connections.values_mut().map(|it| it.commands.push_back(command.clone())).count()
    }

    pub(crate) fn command_connection(&mut self, connection: u64, command: SocketCommand) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.commands.push_back(command);
        }
    }

    pub(crate) fn next_command(&mut self, connection: u64) -> Option<SocketCommand> {
        self.connections.get_mut(&connection)?.commands.pop_front()
    }

    /// The next event for a connection, with its sequence number.
    pub(crate) fn next_event(&mut self, connection: u64) -> Option<(usize, Event)> {
        let (id, sent) = self.connections.get_mut(&connection)?.position.as_mut()?;
        let event = self.sessions.get(id)?.get(*sent)?.clone();
        *sent += 1;
        Some((*sent, event))
    }

    fn attach(&mut self, connection: u64, id: String, sent: usize) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.position = Some((id, sent));
        }
    }
}
