//! A model and tools that are given as values: simulations bring their own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use petasos_core::transcript::ToolCall;

use crate::compact::Window;
use crate::failure::Failure;
use crate::request::{Answer, Chunk, Request, ToolSpec};
use crate::terminal::Judge;
use crate::tools::{SessionCtx, ToolResult};

/// A model in place of the configured one.
pub trait Model: fmt::Debug + Send + Sync {
    /// See [`crate::Brain::answer`].
    fn answer<'a>(
        &'a self,
        request: &'a Request,
        chunks: &'a mut (dyn FnMut(Chunk) + Send),
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

    fn window(&self) -> Window;

    /// What it is offered beside the tools of the table.
    fn tools(&self) -> Arc<dyn Tools>;
}

/// Tools beside those of the table.
pub trait Tools: fmt::Debug + Send + Sync {
    fn specs(&self) -> Vec<ToolSpec>;

    /// `None`: it is not one of these. Otherwise whether it changes nothing.
    fn read_only(&self, name: &str) -> Option<bool>;

    /// `judge`: decides about commands, as it does for the terminal.
    fn run<'a>(
        &'a self,
        call: &'a ToolCall,
        ctx: &'a SessionCtx,
        judge: &'a dyn Judge,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;
}
