//! One gateway socket: HELLO, then events, responses to the client, and the commands of the test.

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use serde_json::{Value, json};

use super::Shared;
use super::sessions::SocketCommand;
use super::state::{ReceivedFrame, State};
use crate::server::reset::ResetHandle;

const HEARTBEAT: u64 = 1;
const IDENTIFY: u64 = 2;
const RESUME: u64 = 6;
const INVALID_SESSION: u64 = 9;
const HELLO: u64 = 10;
const ACK: u64 = 11;

pub(crate) async fn serve(
    shared: Arc<Shared>,
    reset_handle: ResetHandle,
    path: String,
    mut socket: WebSocket,
) {
    let (connection, interval) =
        shared.state.change(|state| (state.sessions.open(), state.behaviour.interval.as_millis()));
    let interval = u64::try_from(interval).unwrap_or(u64::MAX);
    let socket = &mut socket;
    let _guard = ConnectionGuard { shared: &shared, connection };
    if !send_frame(socket, &json!({ "op": HELLO, "d": { "heartbeat_interval": interval } })).await {
        return;
    }
    loop {
        let woken = shared.changed.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        if !send_pending(&shared, connection, socket, &reset_handle).await {
            return;
        }
        let received = tokio::select! {
            () = woken => continue,
            received = socket.recv() => received,
        };
        let text = match received {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map(|frame| frame.code);
                return shared.state.change(|state| state.closes.push(code));
            }
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Err(_)) | None => return shared.state.change(|state| state.closes.push(None)),
        };
        let frame: Value = serde_json::from_str(&text).unwrap_or_default();
        shared.update(|state| receive(state, connection, &path, &frame));
    }
}

/// Sends everything that is ready. `false`: the connection has ended.
async fn send_pending(
    shared: &Shared,
    connection: u64,
    socket: &mut WebSocket,
    reset_handle: &ResetHandle,
) -> bool {
    loop {
        let (command, silent) = shared.state.change(|state| {
            let command = state.sessions.next_command(connection);
            (command, state.behaviour.silent)
        });
        let sent = match command {
            Some(SocketCommand::Send(text)) if !silent => {
                socket.send(Message::Text(text.into())).await.is_ok()
            }
            Some(SocketCommand::Send(_)) => true,
            Some(SocketCommand::Close(code)) => {
                let frame = CloseFrame { code, reason: "test command".into() };
                let _gone_already = socket.send(Message::Close(Some(frame))).await;
                false
            }
            Some(SocketCommand::Cut) => {
                reset_handle.reset();
                false
            }
            None if silent => return true,
            None => match shared.state.change(|state| state.sessions.next_event(connection)) {
                Some((sequence, event)) => {
                    send_frame(socket, &json!({ "op": 0, "s": sequence, "t": event.kind, "d": event.data }))
                        .await
                }
                None => return true,
            },
        };
        if !sent {
            return false;
        }
    }
}

fn receive(state: &mut State, connection: u64, path: &str, frame: &Value) {
    let op = frame["op"].as_u64().unwrap_or(u64::MAX);
    let data = frame["d"].clone();
    state.frames.push(ReceivedFrame {
        connection,
        path: path.to_owned(),
        op,
        data: data.clone(),
        at: crate::now(),
    });
    match op {
        HEARTBEAT if state.behaviour.acks => queue_frame(state, connection, json!({ "op": ACK })),
        IDENTIFY | RESUME => start_session(state, connection, op, &data),
        _ignored => {}
    }
}

fn start_session(state: &mut State, connection: u64, op: u64, data: &Value) {
    let token = data["token"].as_str().unwrap_or_default();
    if state.token.as_deref().is_some_and(|known| known != token) {
        return state.sessions.command_connection(connection, SocketCommand::Close(4004));
    }
    if let Some(code) = state.behaviour.close_code {
        return state.sessions.command_connection(connection, SocketCommand::Close(code));
    }
    if state.behaviour.withholds_ready {
        return;
    }
    if op == RESUME {
        let id = data["session_id"].as_str().unwrap_or_default();
        let sequence = data["seq"].as_u64();
        if !state.sessions.resume(connection, id, sequence.unwrap_or(u64::MAX)) {
            queue_frame(state, connection, json!({ "op": INVALID_SESSION, "d": false }));
        }
        return;
    }
    let mut sessions = std::mem::take(&mut state.sessions);
    sessions.start(connection, |session| state.initial_events(session));
    state.sessions = sessions;
}

fn queue_frame(state: &mut State, connection: u64, frame: Value) {
    state.sessions.command_connection(connection, SocketCommand::Send(frame.to_string()));
}

async fn send_frame(socket: &mut WebSocket, frame: &Value) -> bool {
    socket.send(Message::Text(frame.to_string().into())).await.is_ok()
}

/// Removes the connection when its task ends.
struct ConnectionGuard<'a> {
    shared: &'a Shared,
    connection: u64,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.shared.state.change(|state| state.sessions.closed(self.connection));
    }
}
