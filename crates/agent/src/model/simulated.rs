//! Interfaces of simulated models and tools.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use petasos_core::transcript::ToolCall;

use crate::conversation::compaction::ContextWindow;
use crate::model::failure::ModelFailure;
use crate::model::request::{Chunk, ModelRequest, ModelResponse, ToolSpec};
use crate::terminal::CommandApprover;
use crate::tools::{SessionCtx, ToolResult};

pub trait SimulatedModel: fmt::Debug + Send + Sync {
    /// See [`crate::ModelChain::complete`].
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        chunks: &'a mut (dyn FnMut(Chunk) + Send),
    ) -> Pin<Box<dyn Future<Output = Result<ModelResponse, ModelFailure>> + Send + 'a>>;

    fn window(&self) -> ContextWindow;

    /// Tools offered in addition to the table.
    fn tools(&self) -> Arc<dyn SimulatedTools>;
}

pub trait SimulatedTools: fmt::Debug + Send + Sync {
    fn specs(&self) -> Vec<ToolSpec>;

    /// Whether the tool changes nothing; `None` if there is no such tool here.
    fn read_only(&self, name: &str) -> Option<bool>;

    /// `approver` decides about commands, as it does for the terminal.
    fn run<'a>(
        &'a self,
        call: &'a ToolCall,
        ctx: &'a SessionCtx,
        approver: &'a dyn CommandApprover,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;
}
