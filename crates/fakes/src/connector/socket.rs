//! One connection of the gateway: its hello, queued events, and outbound actions with their results.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{self, ConnectInfo};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Shared;
use super::state::{OutboundFault, SocketCommand, SocketState, State};
use crate::server::reset::ResetHandle;

pub(super) async fn upgrade(
    extract::State(shared): extract::State<Arc<Shared>>,
    ConnectInfo(reset_handle): ConnectInfo<ResetHandle>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let close = shared.update(|state| {
        state.bearers.push(bearer);
        state.close_frames.pop_front()
    });
    upgrade.on_upgrade(async move |mut socket| match close {
        Some((code, reason)) => {
            let frame = CloseFrame { code, reason: reason.into() };
            let _already_closed = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        }
        None => serve(shared, reset_handle, socket).await,
    })
}

enum NextStep {
    Send(Message),
    Silence,
    Wait,
}

async fn serve(shared: Arc<Shared>, reset_handle: ResetHandle, mut socket: WebSocket) {
    let guard = ConnectionGuard::open(&shared);
    loop {
        let woken = shared.changed.notified();
        match shared.state.change(|state| next(state, guard.number)) {
            NextStep::Send(message) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            NextStep::Silence => return future::pending().await,
            NextStep::Wait => tokio::select! {
                () = woken => {}
                received = socket.recv() => match received {
                    Some(Ok(Message::Text(text))) => {
                        if !guard.receive(&reset_handle, text.as_str()) {
                            return;
                        }
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(Message::Ping(_))) => shared.state.change(|state| state.pings += 1),
                    Some(Ok(Message::Binary(_) | Message::Pong(_))) => {}
                },
            },
        }
    }
}

fn next(state: &mut State, number: u64) -> NextStep {
    let Some(connection) = state.connections.iter_mut().find(|it| it.number == number) else {
        return NextStep::Wait;
    };
    match connection.commands.pop_front() {
        Some(SocketCommand::Text(text)) => return NextStep::Send(Message::text(text)),
        Some(SocketCommand::Bytes(bytes)) => return NextStep::Send(Message::Binary(bytes.into())),
        Some(SocketCommand::Close(code, reason)) => {
            return NextStep::Send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
        }
        Some(SocketCommand::Silence) => return NextStep::Silence,
        None => {}
    }
    if !connection.greeted || connection.idle || connection.sent >= state.queue.len() {
        return NextStep::Wait;
    }
    let frame = state.queue[connection.sent].1.clone();
    connection.sent += 1;
    NextStep::Send(Message::text(frame))
}

struct ConnectionGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl ConnectionGuard {
    fn open(shared: &Arc<Shared>) -> Self {
        let number = shared.state.change(|state| {
            let number = state.next_number();
            state.connections.push(SocketState {
                number,
                commands: [].into(),
                greeted: false,
                idle: false,
                sent: 0,
                delayed: Vec::new(),
            });
            number
        });
        Self { shared: shared.clone(), number }
    }

    /// `false`: the connection was reset.
    fn receive(&self, reset_handle: &ResetHandle, text: &str) -> bool {
        for piece in text.split('\n').filter(|piece| !piece.trim().is_empty()) {
            let Ok(frame) = serde_json::from_str::<Value>(piece) else {
                self.shared.update(|state| state.malformed_lines += 1);
                continue;
            };
            if !text.ends_with('\n') {
                self.shared.update(|state| state.malformed_lines += 1);
            }
            self.shared.update(|state| state.frames.push((self.number, frame.clone())));
            if !self.handle_frame(reset_handle, &frame) {
                return false;
            }
        }
        true
    }

    fn handle_frame(&self, reset_handle: &ResetHandle, frame: &Value) -> bool {
        match frame["type"].as_str().unwrap_or_default() {
            "hello" => self.hello(frame["platform"].as_str().unwrap_or_default()),
            "inbound_ack" => {
                let id = frame["bufferId"].as_str().unwrap_or_default().to_owned();
                self.shared.update(|state| state.ack(&id));
            }
            "going_idle" => self.idle(),
            "outbound" => return self.outbound(reset_handle, frame),
            _other => {}
        }
        true
    }

    fn hello(&self, platform: &str) {
        self.shared.update(|state| {
            if state.ignored_hellos > 0 {
                state.ignored_hellos -= 1;
                return;
            }
            let descriptor = json!({"type": "descriptor", "descriptor": state.descriptor(platform).clone()});
            let closes = state.closes_after_descriptor > 0;
            state.closes_after_descriptor = state.closes_after_descriptor.saturating_sub(1);
            let Some(connection) = state.connections.iter_mut().find(|it| it.number == self.number) else {
                return;
            };
            connection.greeted = true;
            connection.commands.push_back(SocketCommand::Text(format!("{descriptor}\n")));
            if closes {
                connection.commands.push_back(SocketCommand::Close(1001, String::new()));
            }
        });
    }

    fn idle(&self) {
        let idle_after = self.shared.state.read(|state| state.idle_after);
        let Some(after) = idle_after else { return };
        let shared = self.shared.clone();
        let number = self.number;
        let grant = move || {
            shared.update(|state| {
                let Some(connection) = state.connections.iter_mut().find(|it| it.number == number) else {
                    return;
                };
                connection.idle = true;
                connection
                    .commands
                    .push_back(SocketCommand::Text("{\"type\":\"going_idle_ack\"}\n".to_owned()));
            });
        };
        if after.is_zero() {
            return grant();
        }
        tokio::spawn(async move {
            sleep(after).await;
            grant();
        });
    }

    fn outbound(&self, reset_handle: &ResetHandle, frame: &Value) -> bool {
        let request = frame["requestId"].as_str().unwrap_or_default().to_owned();
        let action = &frame["action"];
        self.shared.update(|state| {
            if let Some(known) = state.results.get(&request) {
                let repeated = result(&request, &known.clone());
                return self.queue(state, repeated);
            }
            let fault = state.take_fault(action);
            match &fault {
                Some(OutboundFault::Refuse(value)) => return self.queue(state, result(&request, value)),
                Some(OutboundFault::Garbage) => {
                    return self.queue(state, "{\"type\":\"outbound_res\n".to_owned());
                }
                Some(OutboundFault::Hang) => return true,
                Some(OutboundFault::ResetBefore) => {
                    reset_handle.reset();
                    return false;
                }
                Some(
                    OutboundFault::HangAfter
                    | OutboundFault::ResetAfter
                    | OutboundFault::ResultReordered
                    | OutboundFault::DelayAfter(_),
                )
                | None => {}
            }
            let value = state.perform(action);
            // An action without effect can be requested again.
            if value["success"] == true {
                state.results.insert(request.clone(), value.clone());
            }
            match fault {
                Some(OutboundFault::HangAfter) => {}
                Some(OutboundFault::ResetAfter) => {
                    reset_handle.reset();
                    return false;
                }
                Some(OutboundFault::ResultReordered) => {
                    let Some(connection) = state.connections.iter_mut().find(|it| it.number == self.number)
                    else {
                        return true;
                    };
                    connection.delayed.push(result(&request, &value));
                }
                Some(OutboundFault::DelayAfter(wait)) => self.queue_after(wait, result(&request, &value)),
                Some(
                    OutboundFault::Refuse(_)
                    | OutboundFault::Garbage
                    | OutboundFault::Hang
                    | OutboundFault::ResetBefore,
                )
                | None => {
                    self.queue(state, result(&request, &value));
                    let connection = state.connections.iter_mut().find(|it| it.number == self.number);
                    let delayed: Vec<_> =
                        connection.map(|it| std::mem::take(&mut it.delayed)).unwrap_or_default();
                    for frame in delayed {
                        self.queue(state, frame);
                    }
                }
            }
            true
        })
    }

    fn queue_after(&self, wait: Duration, frame: String) {
        let shared = self.shared.clone();
        let number = self.number;
        tokio::spawn(async move {
            sleep(wait).await;
            shared.update(|state| {
                let connection = state.connections.iter_mut().find(|it| it.number == number);
                connection.map(|it| it.commands.push_back(SocketCommand::Text(frame)))
            });
        });
    }

    fn queue(&self, state: &mut State, frame: String) -> bool {
        if let Some(connection) = state.connections.iter_mut().find(|it| it.number == self.number) {
            connection.commands.push_back(SocketCommand::Text(frame));
        }
        true
    }
}

fn result(request: &str, value: &Value) -> String {
    format!("{}\n", json!({"type": "outbound_result", "requestId": request, "result": value}))
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.shared.update(|state| {
            let idle = state.connections.iter().any(|it| it.number == self.number && it.idle);
            state.connections.retain(|it| it.number != self.number);
            state.closed += 1;
            state.closed_idle += u64::from(idle);
        });
    }
}
