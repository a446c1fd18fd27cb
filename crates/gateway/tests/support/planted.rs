//! Writes sessions of an earlier process directly into the store.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::{BackgroundWork, FreshnessWindow, ResetPolicy, ResolveMode, ResumeReason};
use petasos_core::transcript::{EffectState, Message, ToolCall};
use petasos_core::turn::{self, Event, Turn, TurnLimits};
use petasos_core::{Inbound, Route, SessionId, Source};
use petasos_gateway::clock;
use petasos_store::{BindRequest, Result, Tx};

use super::{GatewayFixture, key, telegram};

#[derive(Debug, Clone)]
pub struct PlantedSession {
    pub chat: i64,
    pub age: Duration,
    pub tail: TranscriptTail,
    pub mark: Option<ResumeMark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptTail {
    Answered,
    /// A tool result without a following message.
    ToolResult,
    /// A message whose turn is open.
    OpenTurn,
}

/// A resume mark of the session.
#[derive(Debug, Clone)]
pub struct ResumeMark {
    pub reason: ResumeReason,
    pub age: Duration,
}

impl ResumeMark {
    pub fn now(reason: ResumeReason) -> Option<Self> {
        Some(Self { reason, age: Duration::ZERO })
    }
}

impl PlantedSession {
    pub fn new(chat: i64) -> Self {
        Self { chat, age: Duration::from_secs(1), tail: TranscriptTail::Answered, mark: None }
    }
}

impl GatewayFixture {
    pub fn plant(&self, planted: &PlantedSession) -> SessionId {
        self.write(|tx| plant(tx, planted))
    }
}

fn plant(tx: &Tx<'_>, planted: &PlantedSession) -> Result<SessionId> {
    let now = clock::now();
    let key = key(planted.chat);
    let at = now.before(planted.age);
    let mut source = Source::new(telegram(), ChatType::Dm, planted.chat.to_string());
    source.user_id = Some(planted.chat.to_string());
    let policy = &ResetPolicy::default();
    let window = FreshnessWindow::default();
    let background = BackgroundWork::None;
    let binding =
        BindRequest { key: &key, source: &source, mode: ResolveMode::Continue, policy, window, background };
    let session = tx.get_or_create(&binding, at)?.entry.session_id;
    let question = Message::user("the question before", at);
    match planted.tail {
        TranscriptTail::Answered => {
            tx.append(&session, &question)?;
            tx.append(&session, &Message::assistant("the answer before", at))?;
        }
        TranscriptTail::ToolResult => {
            let call = ToolCall { id: "call_1".into(), name: "clock".into(), arguments: "{}".into() };
            tx.append(&session, &question)?;
            tx.append(&session, &Message::tool_request("", vec![call.clone()], at))?;
            tx.append(&session, &Message::tool(&call, "it is late", EffectState::Known, at))?;
        }
        TranscriptTail::OpenTurn => {
            let inbound =
                Inbound::new(source.clone(), format!("planted:{}", planted.chat), question.content.clone());
            let inbox = vec![tx.accept(&inbound, &key, at)?.id()];
            let route = Route::to_source(&source, Delivery::Push);
            let turn = Turn::new(key.clone(), session.clone(), route, inbox, at);
            let started = turn.map(|turn| {
                turn::step(turn, TurnLimits::default(), at, Event::Started { rows: vec![question] }).1
            });
            let writes: Vec<Write> = started.map(|decision| decision.writes).unwrap_or_default();
            tx.apply(&writes, at)?;
        }
    }
    if let Some(ResumeMark { reason, age }) = &planted.mark {
        tx.mark_resume_pending(&key, reason.clone(), now.before(*age))?;
    }
    Ok(session)
}
