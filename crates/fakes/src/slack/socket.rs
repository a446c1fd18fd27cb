//! One Socket Mode connection: hello, envelopes out, acknowledgements in.
//!
//! A connection that is silent keeps its line open and neither reads nor writes: even pings stay unanswered.

use std::future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::http::arrive;
use super::world::{Ack, Connection, Wish, World};
use crate::line::Line;

/// What a connection does next.
enum Todo {
    Say(String),
    Ping,
    Close,
    Reset,
    Silence,
    /// Nothing, until something changes or this moment comes.
    Wait(Option<Instant>),
}

#[derive(Deserialize)]
struct Acked {
    envelope_id: String,
    #[serde(default)]
    payload: Value,
}

pub(crate) async fn serve(shared: Arc<Shared>, line: Line, mut socket: WebSocket) {
    let (_, held) = arrive(&shared, "hello", "", &Arc::default());
    if held.before::<()>().await.is_some() {
        return line.reset();
    }
    let seat = Seat::take(&shared);
    if socket.send(Message::text(seat.hello())).await.is_err() {
        return;
    }
    loop {
        let rung = shared.bell.notified();
        let todo = shared.world.change(|world| next(world, seat.number, crate::now()));
        let sent = match todo {
            Todo::Say(text) => socket.send(Message::text(text)).await,
            Todo::Ping => socket.send(Message::Ping(Bytes::from_static(b"Ping from applink"))).await,
            Todo::Close => socket.send(Message::Close(None)).await,
            Todo::Reset => return line.reset(),
            // The seat is kept: what is on its way over this line comes back when its time is up.
            Todo::Silence => return future::pending().await,
            Todo::Wait(until) => {
                tokio::select! {
                    () = rung => {}
                    () = sleep_until(until) => {}
                    heard = socket.recv() => match heard {
                        Some(Ok(message)) => seat.heard(&message),
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

fn next(world: &mut World, number: u64, now: Instant) -> Todo {
    let Some(connection) = world.connections.iter_mut().find(|it| it.number == number) else {
        return Todo::Reset;
    };
    match connection.wishes.pop_front() {
        Some(Wish::Say(text)) => return Todo::Say(text),
        Some(Wish::Ping) => return Todo::Ping,
        Some(Wish::Close) => {
            connection.leaving = true;
            return Todo::Close;
        }
        Some(Wish::Reset) => return Todo::Reset,
        Some(Wish::Silence) => return Todo::Silence,
        None => {}
    }
    if !connection.leaving
        && let Some(frame) = world.deliveries.next(number, now)
    {
        return Todo::Say(frame);
    }
    Todo::Wait(world.deliveries.next_expiry())
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

/// A connection's place in the world; given up when the connection ends.
struct Seat<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> Seat<'a> {
    fn take(shared: &'a Shared) -> Self {
        let number = shared.world.change(|world| {
            world.opened += 1;
            let number = world.opened;
            world.connections.push(Connection { number, wishes: [].into(), silent: false, leaving: false });
            number
        });
        Self { shared, number }
    }

    fn hello(&self) -> String {
        let count = self.shared.world.read(World::open_sockets);
        json!({
            "type": "hello", "num_connections": count, "connection_info": { "app_id": "A1" },
            "debug_info": {
                "host": "applink-fake", "build_number": 1, "approximate_connection_time": 18_060,
            },
        })
        .to_string()
    }

    fn heard(&self, message: &Message) {
        let (at, connection) = (crate::now(), self.number);
        match message {
            Message::Text(text) => {
                let Ok(acked) = serde_json::from_str::<Acked>(text.as_str()) else { return };
                self.shared.ring(|world| {
                    let known = world.deliveries.ack(&acked.envelope_id, at);
                    world.acks.push(Ack {
                        envelope: acked.envelope_id,
                        delivery: known.map(|(delivery, _)| delivery),
                        took: known.map(|(_, took)| took),
                        connection,
                        at,
                        payload: acked.payload,
                    });
                });
            }
            Message::Ping(_) => self.shared.world.change(|world| world.pings += 1),
            Message::Pong(_) => self.shared.world.change(|world| world.pongs += 1),
            Message::Binary(_) | Message::Close(_) => {}
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.shared.ring(|world| {
            world.connections.retain(|connection| connection.number != self.number);
            world.deliveries.connection_lost(self.number);
        });
    }
}
