//! Fixture of the terminal tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_core::transcript::ToolCall;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use serde_json::Value;
use tempfile::TempDir;

use super::background::record::{
    self, BackgroundProcess, Ledger, ProcessEvent, ProcessExit, ProcessIdentity, RecordedProcess,
};
use super::{CommandApprover, CommandDecision, CommandRequest, Terminal, TerminalConfig, WatchLimits};
use crate::tools::{AsyncDelivery, Respondent, SessionCtx, Tools, TurnHeartbeat};

pub(crate) fn ctx(home: &Path, platform: &str, chat: &str) -> SessionCtx {
    SessionCtx {
        key: SessionKey(format!("agent:main:{platform}:dm:{chat}")),
        session: SessionId("s".into()),
        source: Source::new(Platform::parse(platform).unwrap(), ChatType::Dm, chat),
        async_delivery: AsyncDelivery::Supported,
        respondent: Respondent::None,
        call: String::new(),
        home: home.to_owned(),
        workspace: home.join("workspace"),
        sent: vec![],
        results: home.join("cache/results").join(chat),
        heartbeat: TurnHeartbeat::default(),
        now: Millis(1_700_000_000_000),
        timezone: None,
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeLedger(Mutex<LedgerState>);

#[derive(Debug, Default, Clone)]
pub(crate) struct LedgerState {
    pub(crate) known: BTreeMap<String, RecordedProcess>,
    pub(crate) events: Vec<ProcessEvent>,
    pub(crate) consumed: Vec<String>,
}

impl FakeLedger {
    pub(crate) fn snapshot(&self) -> LedgerState {
        self.0.lock().unwrap().clone()
    }

    /// Simulates a crash between the start and its record; returns the pid.
    pub(crate) fn forget_pid(&self, id: &str) -> u32 {
        self.0.lock().unwrap().known.get_mut(id).unwrap().identity.take().unwrap().pid
    }

    /// Simulates a reused pid; returns the original one.
    pub(crate) fn replace_pid(&self, id: &str, pid: u32) -> u32 {
        let mut state = self.0.lock().unwrap();
        std::mem::replace(&mut state.known.get_mut(id).unwrap().identity.as_mut().unwrap().pid, pid)
    }

    fn update(&self, change: impl FnOnce(&mut LedgerState)) -> record::LedgerWrite<'_> {
        change(&mut self.0.lock().unwrap());
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Ledger for FakeLedger {
    fn begin(&self, record: BackgroundProcess) -> record::LedgerWrite<'_> {
        self.update(|state| {
            let known = RecordedProcess { record, identity: None, end: None };
            assert!(state.known.insert(known.record.id.clone(), known).is_none(), "an id is used once");
        })
    }

    fn started(&self, id: &str, identity: ProcessIdentity) -> record::LedgerWrite<'_> {
        self.update(|state| state.known.get_mut(id).unwrap().identity = Some(identity))
    }

    fn ended(
        &self,
        record: &BackgroundProcess,
        end: ProcessExit,
        event: Option<ProcessEvent>,
    ) -> record::LedgerWrite<'_> {
        self.update(|state| {
            let known = state.known.get_mut(&record.id).unwrap();
            assert_eq!(known.end.replace(end), None, "it ends once");
            state.events.extend(event);
        })
    }

    fn happened(&self, record: &BackgroundProcess, event: ProcessEvent) -> record::LedgerWrite<'_> {
        self.update(|state| {
            state.known.get_mut(&record.id).unwrap().record = record.clone();
            state.events.push(event);
        })
    }

    fn consumed(&self, id: &str) -> record::LedgerWrite<'_> {
        self.update(|state| state.consumed.push(id.to_owned()))
    }
}

#[derive(Debug)]
struct ApproveAll;

impl CommandApprover for ApproveAll {
    fn decide<'a>(
        &'a self,
        _request: CommandRequest<'a>,
        _ctx: &'a SessionCtx,
    ) -> Pin<Box<dyn Future<Output = CommandDecision> + Send + 'a>> {
        Box::pin(std::future::ready(CommandDecision::Run { note: None }))
    }
}

pub(crate) struct TerminalFixture {
    pub(crate) ledger: Arc<FakeLedger>,
    pub(crate) terminal: Arc<Terminal>,
    pub(crate) home: TempDir,
    pub(crate) tools: Tools,
}

impl TerminalFixture {
    pub(crate) fn new() -> Self {
        Self::with_approver(Arc::new(ApproveAll))
    }

    pub(crate) fn with_approver(approver: Arc<dyn CommandApprover>) -> Self {
        Self::build(TempDir::new().unwrap(), approver, Arc::default(), WatchLimits::default())
    }

    pub(crate) fn with_limits(watch_limits: WatchLimits) -> Self {
        Self::build(TempDir::new().unwrap(), Arc::new(ApproveAll), Arc::default(), watch_limits)
    }

    /// Simulates a crash and restart of the gateway.
    pub(crate) async fn restart(self) -> Self {
        let Self { home, ledger, .. } = self;
        let next = Self::build(home, Arc::new(ApproveAll), ledger, WatchLimits::default());
        next.terminal.adopt(next.ledger.snapshot().known.into_values().collect()).await;
        next
    }

    fn build(
        home: TempDir,
        approver: Arc<dyn CommandApprover>,
        ledger: Arc<FakeLedger>,
        watch_limits: WatchLimits,
    ) -> Self {
        let grace = Duration::from_millis(300);
        let config = TerminalConfig { grace, login: false, watch_limits, ..TerminalConfig::default() };
        let terminal = Arc::new(Terminal::new(config, home.path(), approver, ledger.clone()).unwrap());
        let tools = Tools::default().with_terminal(terminal.clone());
        Self { home, tools, ledger, terminal }
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
