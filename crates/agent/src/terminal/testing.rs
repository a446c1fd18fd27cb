//! What the tests of this module share.

use std::path::Path;
use std::sync::Arc;

use petasos_core::message::ChatType;
use petasos_core::transcript::ToolCall;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use serde_json::Value;
use tempfile::TempDir;

use super::{Terminal, TerminalConfig, Unjudged};
use crate::tools::{Later, SessionCtx, Tools};

pub(crate) fn ctx(home: &Path, platform: &str, chat: &str) -> SessionCtx {
    SessionCtx {
        key: SessionKey(format!("agent:main:{platform}:dm:{chat}")),
        session: SessionId("s".into()),
        source: Source::new(Platform::parse(platform).unwrap(), ChatType::Dm, chat),
        later: Later::Supported,
        home: home.to_owned(),
        workspace: home.join("workspace"),
        now: Millis(1_700_000_000_000),
        timezone: None,
    }
}

/// A machine with a terminal.
pub(crate) struct Bench {
    pub(crate) home: TempDir,
    pub(crate) tools: Tools,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(TerminalConfig::default())
    }

    pub(crate) fn with(config: TerminalConfig) -> Self {
        let home = TempDir::new().unwrap();
        let terminal = Terminal::new(config, home.path(), Arc::new(Unjudged)).unwrap();
        Self { tools: Tools::default().with_terminal(Arc::new(terminal)), home }
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
