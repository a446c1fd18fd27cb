//! The person who decides about hosts that no rule covers.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use crate::credentials::SandboxId;
use crate::policy::rule::HostRule;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostDecision {
    /// For this run of the sandbox.
    Once,
    Session,
    Always,
    Denied,
    NoAnswer,
    /// There is no person to ask.
    CannotAsk,
}

pub type DecisionFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Approver: Debug + Send + Sync + 'static {
    /// Whether an earlier decision allows the host. Called for every connection that no rule covers, so revoking a decision has
    /// an effect at once.
    fn is_granted<'a>(&'a self, sandbox: &'a SandboxId, host: &'a HostRule) -> DecisionFuture<'a, bool>;

    /// Asks, and stores `Session` and `Always`; the caller remembers the others. Dropping the future withdraws the question.
    fn ask<'a>(&'a self, sandbox: &'a SandboxId, host: &'a HostRule) -> DecisionFuture<'a, HostDecision>;
}
