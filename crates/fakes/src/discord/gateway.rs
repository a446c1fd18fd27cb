//! One socket of the gateway: HELLO, then whatever the client asks and the test orders.

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use serde_json::{Value, json};

use super::Shared;
use super::sessions::Order;
use super::world::{Heard, World};
use crate::line::Line;

const HEARTBEAT: u64 = 1;
const IDENTIFY: u64 = 2;
const RESUME: u64 = 6;
const INVALID_SESSION: u64 = 9;
const HELLO: u64 = 10;
const ACK: u64 = 11;

pub(crate) async fn serve(shared: Arc<Shared>, line: Line, path: String, mut socket: WebSocket) {
    let (connection, interval) =
        shared.world.change(|world| (world.sessions.open(), world.manner.interval.as_millis()));
    let interval = u64::try_from(interval).unwrap_or(u64::MAX);
    let socket = &mut socket;
    let _gone = Open { shared: &shared, connection };
    if !say(socket, &json!({ "op": HELLO, "d": { "heartbeat_interval": interval } })).await {
        return;
    }
    loop {
        let rung = shared.bell.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();
        if !speak(&shared, connection, socket, &line).await {
            return;
        }
        let heard = tokio::select! {
            () = rung => continue,
            heard = socket.recv() => heard,
        };
        let text = match heard {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map(|frame| frame.code);
                return shared.world.change(|world| world.closes.push(code));
            }
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Err(_)) | None => return shared.world.change(|world| world.closes.push(None)),
        };
        let frame: Value = serde_json::from_str(&text).unwrap_or_default();
        shared.ring(|world| hear(world, connection, &path, &frame));
    }
}

/// Everything that is ready to be said; false: the connection has ended.
async fn speak(shared: &Shared, connection: u64, socket: &mut WebSocket, line: &Line) -> bool {
    loop {
        let (order, silent) = shared.world.change(|world| {
            let order = world.sessions.next_order(connection);
            (order, world.manner.silent)
        });
        let sent = match order {
            Some(Order::Say(text)) if !silent => socket.send(Message::Text(text.into())).await.is_ok(),
            Some(Order::Say(_)) => true,
            Some(Order::Close(code)) => {
                let frame = CloseFrame { code, reason: "as ordered".into() };
                let _gone_already = socket.send(Message::Close(Some(frame))).await;
                false
            }
            Some(Order::Cut) => {
                line.reset();
                false
            }
            None if silent => return true,
            None => match shared.world.change(|world| world.sessions.next_event(connection)) {
                Some((sequence, event)) => {
                    say(socket, &json!({ "op": 0, "s": sequence, "t": event.kind, "d": event.data })).await
                }
                None => return true,
            },
        };
        if !sent {
            return false;
        }
    }
}

fn hear(world: &mut World, connection: u64, path: &str, frame: &Value) {
    let (op, data) = (frame["op"].as_u64().unwrap_or(u64::MAX), frame["d"].clone());
    world.heard.push(Heard { connection, path: path.to_owned(), op, data: data.clone(), at: crate::now() });
    match op {
        HEARTBEAT if world.manner.acks => order(world, connection, json!({ "op": ACK })),
        IDENTIFY | RESUME => begin(world, connection, op, &data),
        _ignored => {}
    }
}

fn begin(world: &mut World, connection: u64, op: u64, data: &Value) {
    let token = data["token"].as_str().unwrap_or_default();
    if world.token.as_deref().is_some_and(|known| known != token) {
        return world.sessions.order_for(connection, Order::Close(4004));
    }
    if let Some(code) = world.manner.refuses {
        return world.sessions.order_for(connection, Order::Close(code));
    }
    if world.manner.mute_at_ready {
        return;
    }
    if op == RESUME {
        let (id, sequence) = (data["session_id"].as_str().unwrap_or_default(), data["seq"].as_u64());
        if !world.sessions.resume(connection, id, sequence.unwrap_or(u64::MAX)) {
            order(world, connection, json!({ "op": INVALID_SESSION, "d": false }));
        }
        return;
    }
    let mut sessions = std::mem::take(&mut world.sessions);
    sessions.start(connection, |session| world.greeting(session));
    world.sessions = sessions;
}

fn order(world: &mut World, connection: u64, frame: Value) {
    world.sessions.order_for(connection, Order::Say(frame.to_string()));
}

async fn say(socket: &mut WebSocket, frame: &Value) -> bool {
    socket.send(Message::Text(frame.to_string().into())).await.is_ok()
}

/// Leaves the list of connections however its task ends.
struct Open<'a> {
    shared: &'a Shared,
    connection: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.world.change(|world| world.sessions.closed(self.connection));
    }
}
