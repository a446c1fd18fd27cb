//! One Socket Mode connection: hello, envelopes out, acknowledgements in.
//!
//! A silent connection stays open but neither reads nor writes; even pings get no response.

use std::future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::http::arrive;
use super::state::{Ack, SocketCommand, SocketState, State};
use crate::server::reset::ResetHandle;

/// The next step of a connection.
enum NextStep {
    Send(String),
    Ping,
    Close,
    Reset,
    Silence,
    /// Waits for a change, or until this time.
    Wait(Option<Instant>),
}

#[derive(Deserialize)]
struct Acknowledgement {
    envelope_id: String,
    #[serde(default)]
    payload: Value,
}

pub(crate) async fn serve(shared: Arc<Shared>, reset_handle: ResetHandle, mut socket: WebSocket) {
    let (_, rules) = arrive(&shared, "hello", "", &Arc::default());
    if rules.before::<()>().await.is_some() {
        return reset_handle.reset();
    }
    let guard = ConnectionGuard::open(&shared);
    if socket.send(Message::text(guard.hello())).await.is_err() {
        return;
    }
    loop {
        let woken = shared.changed.notified();
        let step = shared.state.change(|state| next(state, guard.number, crate::now()));
        let sent = match step {
            NextStep::Send(text) => socket.send(Message::text(text)).await,
            NextStep::Ping => socket.send(Message::Ping(Bytes::from_static(b"Ping from applink"))).await,
            NextStep::Close => socket.send(Message::Close(None)).await,
            NextStep::Reset => return reset_handle.reset(),
            // The guard stays alive, so deliveries over this connection repeat only on their timeout.
            NextStep::Silence => return future::pending().await,
            NextStep::Wait(until) => {
                tokio::select! {
                    () = woken => {}
                    () = sleep_until(until) => {}
                    received = socket.recv() => match received {
                        Some(Ok(message)) => guard.receive(&message),
                        Some(Err(_)) | None => return,
                    },
                }
                Ok(())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn next(state: &mut State, number: u64, now: Instant) -> NextStep {
    let Some(connection) = state.connections.iter_mut().find(|it| it.number == number) else {
        return NextStep::Reset;
    };
    match connection.commands.pop_front() {
        Some(SocketCommand::Send(text)) => return NextStep::Send(text),
        Some(SocketCommand::Ping) => return NextStep::Ping,
        Some(SocketCommand::Close) => {
            connection.leaving = true;
            return NextStep::Close;
        }
        Some(SocketCommand::Reset) => return NextStep::Reset,
        Some(SocketCommand::Silence) => return NextStep::Silence,
        None => {}
    }
    if !connection.leaving
        && let Some(frame) = state.deliveries.next(number, now)
    {
        return NextStep::Send(frame);
    }
    NextStep::Wait(state.deliveries.next_expiry())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => {
            let wait = at.saturating_duration_since(crate::now()).max(Duration::from_millis(1));
            tokio::time::sleep(wait).await;
        }
        None => future::pending().await,
    }
}

/// A registered connection; removed when it ends.
struct ConnectionGuard<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> ConnectionGuard<'a> {
    fn open(shared: &'a Shared) -> Self {
        let number = shared.state.change(|state| {
            state.opened += 1;
            let number = state.opened;
            state.connections.push(SocketState {
                number,
                commands: [].into(),
                silent: false,
                leaving: false,
            });
            number
        });
        Self { shared, number }
    }

    fn hello(&self) -> String {
        let count = self.shared.state.read(State::open_sockets);
        json!({
            "type": "hello", "num_connections": count, "connection_info": { "app_id": "A1" },
            "debug_info": {
                "host": "applink-fake", "build_number": 1, "approximate_connection_time": 18_060,
            },
        })
        .to_string()
    }

    fn receive(&self, message: &Message) {
        let at = crate::now();
        let connection = self.number;
        match message {
            Message::Text(text) => {
                let Ok(ack) = serde_json::from_str::<Acknowledgement>(text.as_str()) else { return };
                self.shared.update(|state| {
                    let known = state.deliveries.ack(&ack.envelope_id, at);
                    state.acks.push(Ack {
                        envelope: ack.envelope_id,
                        delivery: known.map(|(delivery, _)| delivery),
                        took: known.map(|(_, took)| took),
                        connection,
                        at,
                        payload: ack.payload,
                    });
                });
            }
            Message::Ping(_) => self.shared.state.change(|state| state.pings += 1),
            Message::Pong(_) => self.shared.state.change(|state| state.pongs += 1),
            Message::Binary(_) | Message::Close(_) => {}
        }
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.shared.update(|state| {
            state.connections.retain(|connection| connection.number != self.number);
            state.deliveries.connection_lost(self.number);
        });
    }
}
