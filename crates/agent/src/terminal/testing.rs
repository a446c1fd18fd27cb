//! What the tests of this module share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_core::transcript::ToolCall;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use serde_json::Value;
use tempfile::TempDir;

use super::record::{self, End, Event, Identity, Known, Ledger, Record};
use super::{Judge, Pace, Terminal, TerminalConfig, Unjudged};
use crate::tools::{Alive, Later, Person, SessionCtx, Tools};

pub(crate) fn ctx(home: &Path, platform: &str, chat: &str) -> SessionCtx {
    SessionCtx {
        key: SessionKey(format!("agent:main:{platform}:dm:{chat}")),
        session: SessionId("s".into()),
        source: Source::new(Platform::parse(platform).unwrap(), ChatType::Dm, chat),
        later: Later::Supported,
        person: Person::Nobody,
        call: String::new(),
        home: home.to_owned(),
        workspace: home.join("workspace"),
        sent: vec![],
        results: home.join("cache/results").join(chat),
        alive: Alive::default(),
        now: Millis(1_700_000_000_000),
        timezone: None,
    }
}

/// What a gateway would keep in its store.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Kept>);

#[derive(Debug, Default, Clone)]
pub(crate) struct Kept {
    pub(crate) known: BTreeMap<String, Known>,
    pub(crate) events: Vec<Event>,
    pub(crate) consumed: Vec<String>,
}

impl Notes {
    pub(crate) fn look(&self) -> Kept {
        self.0.lock().unwrap().clone()
    }

    /// As if the gateway had died between the start and the note of it. Gives the process.
    pub(crate) fn forget(&self, id: &str) -> u32 {
        self.0.lock().unwrap().known.get_mut(id).unwrap().who.take().unwrap().pid
    }

    /// As if another process had got the number. Gives the real one.
    pub(crate) fn mistake(&self, id: &str, pid: u32) -> u32 {
        let mut kept = self.0.lock().unwrap();
        std::mem::replace(&mut kept.known.get_mut(id).unwrap().who.as_mut().unwrap().pid, pid)
    }

    fn note(&self, change: impl FnOnce(&mut Kept)) -> record::Kept<'_> {
        change(&mut self.0.lock().unwrap());
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Ledger for Notes {
    fn begin(&self, record: Record) -> record::Kept<'_> {
        self.note(|kept| {
            let known = Known { record, who: None, end: None };
            assert!(kept.known.insert(known.record.id.clone(), known).is_none(), "an id is used once");
        })
    }

    fn started(&self, id: &str, who: Identity) -> record::Kept<'_> {
        self.note(|kept| kept.known.get_mut(id).unwrap().who = Some(who))
    }

    fn ended(&self, record: &Record, end: End, event: Option<Event>) -> record::Kept<'_> {
        self.note(|kept| {
            let known = kept.known.get_mut(&record.id).unwrap();
            assert_eq!(known.end.replace(end), None, "it ends once");
            kept.events.extend(event);
        })
    }

    fn happened(&self, record: &Record, event: Event) -> record::Kept<'_> {
        self.note(|kept| {
            kept.known.get_mut(&record.id).unwrap().record = record.clone();
            kept.events.push(event);
        })
    }

    fn consumed(&self, id: &str) -> record::Kept<'_> {
        self.note(|kept| kept.consumed.push(id.to_owned()))
    }
}

/// A machine with a terminal.
pub(crate) struct Bench {
    pub(crate) notes: Arc<Notes>,
    pub(crate) terminal: Arc<Terminal>,
    pub(crate) home: TempDir,
    pub(crate) tools: Tools,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::judged(Arc::new(Unjudged))
    }

    pub(crate) fn judged(judge: Arc<dyn Judge>) -> Self {
        Self::on(TempDir::new().unwrap(), judge, Arc::default(), Pace::default())
    }

    /// Whose time passes faster.
    pub(crate) fn paced(pace: Pace) -> Self {
        Self::on(TempDir::new().unwrap(), Arc::new(Unjudged), Arc::default(), pace)
    }

    /// The gateway is gone from one moment to the next, and another one has come.
    pub(crate) async fn reborn(self) -> Self {
        let Self { home, notes, .. } = self;
        let next = Self::on(home, Arc::new(Unjudged), notes, Pace::default());
        next.terminal.adopt(next.notes.look().known.into_values().collect()).await;
        next
    }

    fn on(home: TempDir, judge: Arc<dyn Judge>, notes: Arc<Notes>, pace: Pace) -> Self {
        let grace = Duration::from_millis(300);
        let config = TerminalConfig { grace, login: false, pace, ..TerminalConfig::default() };
        let terminal = Arc::new(Terminal::new(config, home.path(), judge, notes.clone()).unwrap());
        let tools = Tools::default().with_terminal(terminal.clone());
        Self { home, tools, notes, terminal }
    }

    pub(crate) fn ctx(&self, chat: &str) -> SessionCtx {
        ctx(self.home.path(), "telegram", chat)
    }

    pub(crate) async fn call(&self, ctx: &SessionCtx, name: &str, arguments: Value) -> Value {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.to_string() };
        let result = self.tools.run(ctx, &call).await;
        serde_json::from_str(&result.content).unwrap()
    }
}
