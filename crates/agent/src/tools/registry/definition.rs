//! Tool definitions: one [`Definition`] per tool, declared in the tool's module and listed in `table.rs`.

use std::fmt;
use std::future::ready;
use std::path::Path;

use serde_json::Value;

use super::arguments::{Object, ToolArguments, parse, schema};
use crate::model::request::ToolSpec;
use crate::tools::concurrency::ResourceAccess;
use crate::tools::{
    CancelFlag, GatewayCall, SessionCtx, SubagentRole, ToolFuture, ToolOutcome, Tools, run_blocking,
};

pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) toolset: Toolset,
    pub(crate) service: Service,
    pub(crate) effects: Effects,
    /// Whether calls select a part of a larger text, so that their results are never stored on disk.
    pub(crate) paginated: bool,
    pub(crate) reach: Reach,
    pub(crate) runner: Runner,
}

/// Groups of tools, as the API lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Toolset {
    File,
    Terminal,
    Schedule,
    /// Includes the tools of MCP servers.
    Other,
}

impl Toolset {
    pub const ALL: [Self; 4] = [Self::File, Self::Terminal, Self::Schedule, Self::Other];

    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Terminal => "terminal",
            Self::Schedule => "schedule",
            Self::Other => "other",
        }
    }

    pub const fn label(self) -> &'static str {
        match self {
            Self::File => "Files",
            Self::Terminal => "Terminal",
            Self::Schedule => "Scheduled work",
            Self::Other => "Other",
        }
    }
}

/// The subsystem that a tool needs; the tool is enabled if the subsystem exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    None,
    Gateway,
    Terminal,
    Delegation,
}

/// Side effects of a call on the workspace and elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// Changes nothing, and reads nothing that another call changes.
    None,
    /// Reads the workspace path in the argument `path`, or `default`.
    Reads {
        default: &'static str,
    },
    /// Writes the workspace path in the argument `path`.
    Writes,
    Anything,
}

impl Effects {
    /// Read-only calls may be repeated.
    const fn read_only(self) -> bool {
        match self {
            Self::None | Self::Reads { .. } => true,
            Self::Writes | Self::Anything => false,
        }
    }
}

/// Parties besides the current turn that a call can involve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Turn,
    /// Asks people, writes to them, or changes what is remembered about them.
    People,
    LaterTurns,
    Subagents,
}

impl Reach {
    /// Whether a session with a restricted list of tools may use it; other turns would have more tools.
    pub(in crate::tools) const fn in_restricted(self) -> bool {
        match self {
            Self::Turn | Self::People => true,
            Self::LaterTurns | Self::Subagents => false,
        }
    }

    pub(in crate::tools) fn in_subagent(self, role: SubagentRole) -> bool {
        match self {
            Self::Turn => true,
            Self::People | Self::LaterTurns => false,
            Self::Subagents => role == SubagentRole::Orchestrator,
        }
    }
}

impl Definition {
    pub(in crate::tools) const fn read_only(&self) -> bool {
        self.effects.read_only()
    }

    /// The resources a call may touch; decides which calls run concurrently.
    pub(in crate::tools) fn access(&self, workspace: &Path, arguments: &Object) -> ResourceAccess {
        match self.effects {
            Effects::None => ResourceAccess::Nothing,
            Effects::Reads { default } => ResourceAccess::reads(workspace, arguments, default),
            Effects::Writes => ResourceAccess::writes(workspace, arguments),
            Effects::Anything => ResourceAccess::All,
        }
    }

    pub(in crate::tools) fn spec(&self) -> ToolSpec {
        let parameters = (self.runner.schema)();
        ToolSpec { name: self.name.to_owned(), description: self.description.to_owned(), parameters }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

type Run = dyn for<'a> Fn(&'a Tools, &'a SessionCtx, Object) -> ToolFuture<'a> + Send + Sync;

/// Runs the calls of a tool. The schema is that of the argument type of `run`.
pub(crate) struct Runner {
    schema: fn() -> Value,
    pub(in crate::tools) run: Box<Run>,
}

impl Runner {
    pub(crate) fn new<A: ToolArguments>(
        run: impl for<'a> Fn(&'a Tools, &'a SessionCtx, A) -> ToolFuture<'a> + Send + Sync + 'static,
    ) -> Self {
        Self {
            schema: schema::<A>,
            run: Box::new(move |tools, ctx, object| match parse(object) {
                Ok(arguments) => run(tools, ctx, arguments),
                Err(reason) => Box::pin(ready(Err(reason))),
            }),
        }
    }

    /// For tools that return at once.
    pub(in crate::tools) fn immediate<A: ToolArguments>(run: fn(&SessionCtx, &A) -> ToolOutcome) -> Self {
        Self::new(move |_, ctx, arguments| Box::pin(ready(run(ctx, &arguments))))
    }

    /// For file I/O, on a blocking thread.
    pub(in crate::tools) fn blocking<A: ToolArguments>(
        run: fn(&SessionCtx, &A, &CancelFlag) -> ToolOutcome,
    ) -> Self {
        Self::new(move |_, ctx, arguments| Box::pin(run_blocking(ctx, arguments, run)))
    }

    /// For tools that the gateway runs.
    pub(in crate::tools) fn gateway<A: ToolArguments>(
        parse_call: fn(A) -> Result<GatewayCall, String>,
    ) -> Self {
        Self::new(move |tools, ctx, arguments| Box::pin(tools.run_in_gateway(ctx, parse_call(arguments))))
    }
}
