//! Frames: one JSON object per line, with a type. No line ends a connection: reading returns `None` for one to ignore,
//! and an error for one to skip.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde_json::{Map, Value, json};

use super::field::{self, Object};
use crate::messages::action::{Action, Answer};
use crate::wire::surrogate;
use crate::{Descriptor, LONGEST_WRITTEN};

/// Sent by connectors.
#[derive(Debug, Clone, PartialEq)]
pub enum FromConnector {
    /// One per hello, in order; see `Descriptor::read`.
    Descriptor(Object),
    /// `event` is raw, because an unreadable event must be acknowledged too. See `Event::read`.
    Inbound {
        event: Value,
        buffer: Option<String>,
    },
    /// A forwarded platform request; see `Forward::read`.
    Forward {
        forward: Value,
        buffer: Option<String>,
    },
    Interrupt {
        session_key: String,
        chat_id: String,
    },
    /// Exactly one per `Outbound`.
    Answer {
        request: String,
        answer: Answer,
    },
    /// Idle grant: the connector holds events for the next connection.
    IdleAck,
}

/// Sent by gateways.
#[derive(Debug, Clone, PartialEq)]
pub enum FromGateway {
    Hello {
        platform: String,
        bot_id: String,
        commands: Option<Value>,
    },
    Ack {
        buffer: String,
    },
    /// `/stop` received by the gateway.
    Interrupt {
        session_key: String,
        reason: Option<String>,
    },
    /// `action` is raw, because an unreadable one is answered too. See `Action::read`.
    Outbound {
        request: String,
        action: Value,
        platform: Option<String>,
        bot_id: Option<String>,
    },
    GoingIdle,
}

/// Why a line is skipped. Contains nothing of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    NotJson,
    NotAnObject,
    NoType,
    /// A field is missing or has the wrong type.
    Field(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("not JSON"),
            Self::NotAnObject => f.write_str("not an object"),
            Self::NoType => f.write_str("no type"),
            Self::Field(name) => write!(f, "no usable {name}"),
        }
    }
}

/// The line exceeds the size limit; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

const LONGEST_REQUEST: usize = 128;

impl FromConnector {
    pub fn read(line: &[u8]) -> Result<Option<Self>, Malformed> {
        let (kind, mut frame) = open(line)?;
        Ok(Some(match kind.as_str() {
            "descriptor" => Self::Descriptor(match frame.remove("descriptor") {
                Some(Value::Object(descriptor)) => descriptor,
                Some(_) | None => return Err(Malformed::Field("descriptor")),
            }),
            // A frame without its event still has a buffer id and is acknowledged.
            "inbound" => {
                Self::Inbound { buffer: buffer(&frame), event: frame.remove("event").unwrap_or_default() }
            }
            "passthrough_forward" => {
                Self::Forward { buffer: buffer(&frame), forward: frame.remove("forward").unwrap_or_default() }
            }
            "interrupt_inbound" => Self::Interrupt {
                session_key: needed(&frame, "session_key")?,
                chat_id: field::text(&frame, "chat_id").unwrap_or_default(),
            },
            "outbound_result" => Self::Answer {
                request: needed(&frame, "requestId")?,
                answer: Answer::read(field::object(&frame, "result").unwrap_or(&Map::new())),
            },
            "going_idle_ack" => Self::IdleAck,
            _unknown => return Ok(None),
        }))
    }

    /// Including the newline. For an event that is too long, see `context::trim`.
    pub fn line(&self) -> Result<String, TooLong> {
        line(match self {
            Self::Descriptor(descriptor) => json!({"type": "descriptor", "descriptor": descriptor}),
            Self::Inbound { event, buffer } => {
                buffered(json!({"type": "inbound", "event": event}), buffer.as_deref())
            }
            Self::Forward { forward, buffer } => {
                buffered(json!({"type": "passthrough_forward", "forward": forward}), buffer.as_deref())
            }
            Self::Interrupt { session_key, chat_id } => {
                json!({"type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id})
            }
            Self::Answer { request, answer } => {
                json!({"type": "outbound_result", "requestId": request, "result": answer.value()})
            }
            Self::IdleAck => json!({"type": "going_idle_ack"}),
        })
    }

    pub fn descriptor(descriptor: &Descriptor) -> Self {
        Self::Descriptor(descriptor.object())
    }
}

impl FromGateway {
    pub fn read(line: &[u8]) -> Result<Option<Self>, Malformed> {
        let (kind, mut frame) = open(line)?;
        Ok(Some(match kind.as_str() {
            "hello" => Self::Hello {
                platform: needed(&frame, "platform")?,
                bot_id: field::text(&frame, "botId").unwrap_or_default(),
                commands: frame.remove("command_manifest").filter(Value::is_array),
            },
            "inbound_ack" => Self::Ack { buffer: buffer(&frame).ok_or(Malformed::Field("bufferId"))? },
            "interrupt" => Self::Interrupt {
                session_key: needed(&frame, "session_key")?,
                reason: field::text(&frame, "reason"),
            },
            "outbound" => Self::Outbound {
                request: needed(&frame, "requestId").and_then(short)?,
                // A frame without an action still has a request id and is answered.
                action: frame.remove("action").unwrap_or_default(),
                platform: field::given(&frame, "platform"),
                bot_id: field::text(&frame, "botId"),
            },
            "going_idle" => Self::GoingIdle,
            _unknown => return Ok(None),
        }))
    }

    pub fn line(&self) -> Result<String, TooLong> {
        line(match self {
            Self::Hello { platform, bot_id, commands } => {
                let mut hello = json!({"type": "hello", "platform": platform, "botId": bot_id});
                put(&mut hello, "command_manifest", commands.clone());
                hello
            }
            Self::Ack { buffer } => json!({"type": "inbound_ack", "bufferId": buffer}),
            Self::Interrupt { session_key, reason } => {
                json!({"type": "interrupt", "session_key": session_key, "reason": reason})
            }
            Self::Outbound { request, action, platform, bot_id } => {
                let mut outbound = json!({"type": "outbound", "requestId": request, "action": action});
                put(&mut outbound, "platform", platform.clone().map(Value::String));
                put(&mut outbound, "botId", bot_id.clone().map(Value::String));
                outbound
            }
            Self::GoingIdle => json!({"type": "going_idle"}),
        })
    }

    pub fn outbound(request: String, action: &Action, to: Option<(String, Option<String>)>) -> Self {
        let (platform, bot_id) = to.map_or((None, None), |(platform, bot_id)| (Some(platform), bot_id));
        Self::Outbound { request, action: action.value(), platform, bot_id }
    }
}

fn open(line: &[u8]) -> Result<(String, Object), Malformed> {
    let read: Result<Value, _> = serde_json::from_slice(line);
    let read = read.or_else(|_| serde_json::from_slice(&surrogate::mended(line)));
    let Value::Object(frame) = read.map_err(|_| Malformed::NotJson)? else {
        return Err(Malformed::NotAnObject);
    };
    let kind = frame.get("type").and_then(Value::as_str).ok_or(Malformed::NoType)?.to_string();
    Ok((kind, frame))
}

fn needed(frame: &Object, name: &'static str) -> Result<String, Malformed> {
    field::given(frame, name).ok_or(Malformed::Field(name))
}

fn short(request: String) -> Result<String, Malformed> {
    if request.len() <= LONGEST_REQUEST { Ok(request) } else { Err(Malformed::Field("requestId")) }
}

/// Zero, empty and absent mean: no acknowledgement.
fn buffer(frame: &Object) -> Option<String> {
    match frame.get("bufferId")? {
        Value::String(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        Value::Number(id) => Some(id.to_string()).filter(|_| id.as_f64().is_some_and(|id| id != 0.0)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn buffered(mut frame: Value, buffer: Option<&str>) -> Value {
    put(&mut frame, "bufferId", buffer.map(Value::from));
    frame
}

fn put(frame: &mut Value, name: &str, value: Option<Value>) {
    if let (Some(frame), Some(value)) = (frame.as_object_mut(), value) {
        frame.insert(name.to_string(), value);
    }
}

fn line(frame: Value) -> Result<String, TooLong> {
    let mut line = frame.to_string();
    line.push('\n');
    if line.len() > LONGEST_WRITTEN { Err(TooLong) } else { Ok(line) }
}

/// Identities for the hellos, in the configured order; without any, one that fronts no platform in particular.
pub fn hellos(identities: &[(String, String)]) -> Vec<FromGateway> {
    let hello = |(platform, bot_id): &(String, String)| FromGateway::Hello {
        platform: platform.clone(),
        bot_id: bot_id.clone(),
        commands: None,
    };
    if identities.is_empty() {
        return Vec::from([hello(&("relay".to_string(), String::new()))]);
    }
    identities.iter().map(hello).collect()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
