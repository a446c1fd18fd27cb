//! What a tool is: one [`Definition`] per tool, written in the tool's module and listed in `table.rs`.

use std::fmt;
use std::future::ready;
use std::path::Path;

use serde_json::Value;

use super::arguments::{Arguments, Object, parse, schema};
use super::plan::Touch;
use super::{Doing, Errand, Outcome, Role, SessionCtx, Stop, Tools, blocking};
use crate::request::ToolSpec;

pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// For the model.
    pub(crate) description: &'static str,
    pub(crate) toolset: Toolset,
    pub(crate) service: Service,
    pub(crate) effects: Effects,
    pub(crate) reach: Reach,
    pub(crate) runner: Runner,
}

/// Groups of tools, as the API lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Toolset {
    File,
    Terminal,
    Schedule,
    /// Also the tools of MCP servers.
    Other,
}

impl Toolset {
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

/// The part of the program that a tool needs: it is on if that part is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    None,
    Gateway,
    Terminal,
    Delegation,
}

/// What a call may read or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// It changes nothing, and no other call changes what it reads.
    None,
    /// It reads the argument `path` of the workspace, or `default`.
    Reads {
        default: &'static str,
    },
    /// It writes the argument `path` of the workspace.
    Writes,
    Anything,
}

impl Effects {
    /// It changes nothing: it may be repeated.
    const fn read_only(self) -> bool {
        match self {
            Self::None | Self::Reads { .. } => true,
            Self::Writes | Self::Anything => false,
        }
    }
}

/// Whom a call can involve besides its own turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Turn,
    /// People: it asks them, writes to them, or changes what is remembered of them.
    People,
    /// Turns that start later.
    LaterTurns,
    /// Turns of subagents.
    Subagents,
}

impl Reach {
    /// Whether a conversation with a restricted list of tools may have it: other turns would have more tools.
    pub(super) const fn in_restricted(self) -> bool {
        match self {
            Self::Turn | Self::People => true,
            Self::LaterTurns | Self::Subagents => false,
        }
    }

    pub(super) fn in_subagent(self, role: Role) -> bool {
        match self {
            Self::Turn => true,
            Self::People | Self::LaterTurns => false,
            Self::Subagents => role == Role::Orchestrator,
        }
    }
}

impl Definition {
    pub(super) const fn read_only(&self) -> bool {
        self.effects.read_only()
    }

    /// What a call may touch: it decides which others run beside it.
    pub(super) fn touch(&self, workspace: &Path, arguments: &Object) -> Touch {
        match self.effects {
            Effects::None => Touch::Nothing,
            Effects::Reads { default } => Touch::reads(workspace, arguments, default),
            Effects::Writes => Touch::writes(workspace, arguments),
            Effects::Anything => Touch::All,
        }
    }

    pub(super) fn spec(&self) -> ToolSpec {
        let parameters = (self.runner.schema)();
        ToolSpec { name: self.name.to_owned(), description: self.description.to_owned(), parameters }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

type Run = dyn for<'a> Fn(&'a Tools, &'a SessionCtx, Object) -> Doing<'a> + Send + Sync;

/// Runs calls of a tool. The schema is the one of the argument type that `run` takes.
pub(crate) struct Runner {
    schema: fn() -> Value,
    pub(super) run: Box<Run>,
}

impl Runner {
    pub(crate) fn new<A: Arguments>(
        run: impl for<'a> Fn(&'a Tools, &'a SessionCtx, A) -> Doing<'a> + Send + Sync + 'static,
    ) -> Self {
        Self {
            schema: schema::<A>,
            run: Box::new(move |tools, ctx, object| match parse(object) {
                Ok(arguments) => run(tools, ctx, arguments),
                Err(reason) => Box::pin(ready(Err(reason))),
            }),
        }
    }

    /// For what takes no time.
    pub(super) fn immediate<A: Arguments>(run: fn(&SessionCtx, &A) -> Outcome) -> Self {
        Self::new(move |_, ctx, arguments| Box::pin(ready(run(ctx, &arguments))))
    }

    /// For file work: on a blocking thread.
    pub(super) fn blocking<A: Arguments>(run: fn(&SessionCtx, &A, &Stop) -> Outcome) -> Self {
        Self::new(move |_, ctx, arguments| Box::pin(blocking(ctx, arguments, run)))
    }

    /// For what the gateway does.
    pub(super) fn errand<A: Arguments>(errand: fn(A) -> Result<Errand, String>) -> Self {
        Self::new(move |tools, ctx, arguments| Box::pin(tools.errand(ctx, errand(arguments))))
    }
}
