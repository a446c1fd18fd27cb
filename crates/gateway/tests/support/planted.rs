//! What an earlier process left in the store, written down instead of lived through.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::{Ask, Background, ResetPolicy, ResumeReason, Window};
use petasos_core::transcript::{EffectState, Message, ToolCall};
use petasos_core::turn::{self, Event, Limits, Turn};
use petasos_core::{Inbound, Route, SessionId, Source};
use petasos_gateway::clock;
use petasos_store::{Binding, Result, Tx};

use super::{World, key, telegram};

/// A conversation of a Telegram chat.
#[derive(Debug, Clone)]
pub struct Planted {
    pub chat: i64,
    /// How long ago it all happened.
    pub age: Duration,
    pub tail: Tail,
    pub mark: Option<Mark>,
}

/// How its transcript ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    Answered,
    /// With a tool's result that nobody has spoken about.
    ToolResult,
    /// With a question whose turn is open.
    OpenTurn,
}

/// It is to be resumed.
#[derive(Debug, Clone)]
pub struct Mark {
    pub reason: ResumeReason,
    pub age: Duration,
}

impl Mark {
    pub fn now(reason: ResumeReason) -> Option<Self> {
        Some(Self { reason, age: Duration::ZERO })
    }
}

impl Planted {
    pub fn new(chat: i64) -> Self {
        Self { chat, age: Duration::from_secs(1), tail: Tail::Answered, mark: None }
    }
}

impl World {
    pub fn plant(&self, planted: &Planted) -> SessionId {
        self.write(|tx| plant(tx, planted))
    }
}

fn plant(tx: &Tx<'_>, planted: &Planted) -> Result<SessionId> {
    let (now, key) = (clock::now(), key(planted.chat));
    let at = now.before(planted.age);
    let mut source = Source::new(telegram(), ChatType::Dm, planted.chat.to_string());
    source.user_id = Some(planted.chat.to_string());
    let (policy, window, background) = (&ResetPolicy::default(), Window::default(), Background::None);
    let binding = Binding { key: &key, source: &source, ask: Ask::Continue, policy, window, background };
    let session = tx.get_or_create(&binding, at)?.entry.session_id;
    let question = Message::user("the question before", at);
    match planted.tail {
        Tail::Answered => {
            tx.append(&session, &question)?;
            tx.append(&session, &Message::assistant("the answer before", at))?;
        }
        Tail::ToolResult => {
            let call = ToolCall { id: "call_1".into(), name: "clock".into(), arguments: "{}".into() };
            tx.append(&session, &question)?;
            tx.append(&session, &Message::asking("", vec![call.clone()], at))?;
            tx.append(&session, &Message::tool(&call, "it is late", EffectState::Known, at))?;
        }
        Tail::OpenTurn => {
            let inbound =
                Inbound::new(source.clone(), format!("planted:{}", planted.chat), question.content.clone());
            let inbox = vec![tx.accept(&inbound, &key, at)?.id()];
            let route = Route::back_to(&source, Delivery::Push);
            let turn = Turn::new(key.clone(), session.clone(), route, inbox, at);
            let started = turn.map(|turn| {
                turn::step(turn, Limits::default(), at, Event::Started { rows: vec![question] }).1
            });
            let writes: Vec<Write> = started.map(|decision| decision.writes).unwrap_or_default();
            tx.apply(&writes, at)?;
        }
    }
    if let Some(Mark { reason, age }) = &planted.mark {
        tx.mark_resume_pending(&key, reason.clone(), now.before(*age))?;
    }
    Ok(session)
}
