//! One connection of the gateway: hello, what waits for it, questions and their results.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Shared;
use super::world::{Connection, Reply, Wish, World};
use crate::line::Line;

pub(super) async fn upgrade(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let refusal = shared.ring(|world| {
        world.bearers.push(bearer);
        world.refusals.pop_front()
    });
    upgrade.on_upgrade(async move |mut socket| match refusal {
        Some((code, reason)) => {
            let frame = CloseFrame { code, reason: reason.into() };
            let _gone = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        }
        None => serve(shared, line, socket).await,
    })
}

enum Todo {
    Send(Message),
    Silence,
    Wait,
}

async fn serve(shared: Arc<Shared>, line: Line, mut socket: WebSocket) {
    let seat = Seat::take(&shared);
    loop {
        let rung = shared.bell.notified();
        match shared.world.change(|world| next(world, seat.number)) {
            Todo::Send(message) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            Todo::Silence => return future::pending().await,
            Todo::Wait => tokio::select! {
                () = rung => {}
                heard = socket.recv() => match heard {
                    Some(Ok(Message::Text(text))) => {
                        if !seat.heard(&line, text.as_str()) {
                            return;
                        }
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(Message::Ping(_))) => shared.world.change(|world| world.pings += 1),
                    Some(Ok(Message::Binary(_) | Message::Pong(_))) => {}
                },
            },
        }
    }
}

fn next(world: &mut World, number: u64) -> Todo {
    let Some(connection) = world.connections.iter_mut().find(|it| it.number == number) else {
        return Todo::Wait;
    };
    match connection.wishes.pop_front() {
        Some(Wish::Text(text)) => return Todo::Send(Message::text(text)),
        Some(Wish::Bytes(bytes)) => return Todo::Send(Message::Binary(bytes.into())),
        Some(Wish::Close(code, reason)) => {
            return Todo::Send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
        }
        Some(Wish::Silence) => return Todo::Silence,
        None => {}
    }
    if !connection.greeted || connection.idle || connection.told >= world.queue.len() {
        return Todo::Wait;
    }
    let frame = world.queue[connection.told].1.clone();
    connection.told += 1;
    Todo::Send(Message::text(frame))
}

struct Seat {
    shared: Arc<Shared>,
    number: u64,
}

impl Seat {
    fn take(shared: &Arc<Shared>) -> Self {
        let number = shared.world.change(|world| {
            let number = world.number();
            let (wishes, late) = ([].into(), Vec::new());
            world.connections.push(Connection { number, wishes, greeted: false, idle: false, told: 0, late });
            number
        });
        Self { shared: shared.clone(), number }
    }

    /// `false`: the connection is gone.
    fn heard(&self, line: &Line, text: &str) -> bool {
        for piece in text.split('\n').filter(|piece| !piece.trim().is_empty()) {
            let Ok(frame) = serde_json::from_str::<Value>(piece) else {
                self.shared.ring(|world| world.rubbish += 1);
                continue;
            };
            if !text.ends_with('\n') {
                self.shared.ring(|world| world.rubbish += 1);
            }
            self.shared.ring(|world| world.heard.push((self.number, frame.clone())));
            if !self.frame(line, &frame) {
                return false;
            }
        }
        true
    }

    fn frame(&self, line: &Line, frame: &Value) -> bool {
        match frame["type"].as_str().unwrap_or_default() {
            "hello" => self.hello(frame["platform"].as_str().unwrap_or_default()),
            "inbound_ack" => {
                let id = frame["bufferId"].as_str().unwrap_or_default().to_owned();
                self.shared.ring(|world| world.ack(&id));
            }
            "going_idle" => self.idle(),
            "outbound" => return self.outbound(line, frame),
            _other => {}
        }
        true
    }

    fn hello(&self, platform: &str) {
        self.shared.ring(|world| {
            if world.mute > 0 {
                world.mute -= 1;
                return;
            }
            let descriptor = json!({"type": "descriptor", "descriptor": world.descriptor(platform).clone()});
            let short = world.short_lives > 0;
            world.short_lives = world.short_lives.saturating_sub(1);
            let Some(connection) = world.connections.iter_mut().find(|it| it.number == self.number) else {
                return;
            };
            connection.greeted = true;
            connection.wishes.push_back(Wish::Text(format!("{descriptor}\n")));
            if short {
                connection.wishes.push_back(Wish::Close(1001, String::new()));
            }
        });
    }

    fn idle(&self) {
        let grants = self.shared.world.read(|world| world.grants);
        let Some(after) = grants else { return };
        let (shared, number) = (self.shared.clone(), self.number);
        let grant = move || {
            shared.ring(|world| {
                let Some(connection) = world.connections.iter_mut().find(|it| it.number == number) else {
                    return;
                };
                connection.idle = true;
                connection.wishes.push_back(Wish::Text("{\"type\":\"going_idle_ack\"}\n".to_owned()));
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

    fn outbound(&self, line: &Line, frame: &Value) -> bool {
        let request = frame["requestId"].as_str().unwrap_or_default().to_owned();
        let action = &frame["action"];
        self.shared.ring(|world| {
            if let Some(known) = world.known.get(&request) {
                let again = result(&request, &known.clone());
                return self.tell(world, again);
            }
            let reply = world.reply(action);
            match &reply {
                Some(Reply::Result(value)) => return self.tell(world, result(&request, value)),
                Some(Reply::Garbled) => return self.tell(world, "{\"type\":\"outbound_res\n".to_owned()),
                Some(Reply::Ignored) => return true,
                Some(Reply::Cut) => {
                    line.reset();
                    return false;
                }
                Some(Reply::Nothing | Reply::Drop | Reply::Later | Reply::After(_)) | None => {}
            }
            let value = world.perform(action);
            // What had no effect may be asked for again.
            if value["success"] == true {
                world.known.insert(request.clone(), value.clone());
            }
            match reply {
                Some(Reply::Nothing) => {}
                Some(Reply::Drop) => {
                    line.reset();
                    return false;
                }
                Some(Reply::Later) => {
                    let Some(connection) = world.connections.iter_mut().find(|it| it.number == self.number)
                    else {
                        return true;
                    };
                    connection.late.push(result(&request, &value));
                }
                Some(Reply::After(wait)) => self.tell_after(wait, result(&request, &value)),
                Some(Reply::Result(_) | Reply::Garbled | Reply::Ignored | Reply::Cut) | None => {
                    self.tell(world, result(&request, &value));
                    let connection = world.connections.iter_mut().find(|it| it.number == self.number);
                    let late: Vec<_> = connection.map(|it| std::mem::take(&mut it.late)).unwrap_or_default();
                    for frame in late {
                        self.tell(world, frame);
                    }
                }
            }
            true
        })
    }

    fn tell_after(&self, wait: Duration, frame: String) {
        let (shared, number) = (self.shared.clone(), self.number);
        tokio::spawn(async move {
            sleep(wait).await;
            shared.ring(|world| {
                let connection = world.connections.iter_mut().find(|it| it.number == number);
                connection.map(|it| it.wishes.push_back(Wish::Text(frame)))
            });
        });
    }

    fn tell(&self, world: &mut World, frame: String) -> bool {
        if let Some(connection) = world.connections.iter_mut().find(|it| it.number == self.number) {
            connection.wishes.push_back(Wish::Text(frame));
        }
        true
    }
}

fn result(request: &str, value: &Value) -> String {
    format!("{}\n", json!({"type": "outbound_result", "requestId": request, "result": value}))
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.ring(|world| {
            let idle = world.connections.iter().any(|it| it.number == self.number && it.idle);
            world.connections.retain(|it| it.number != self.number);
            world.closed += 1;
            world.closed_idle += u64::from(idle);
        });
    }
}
