//! Tokens of unanswered interactions: the newest few, in memory only.
//!
//! An interaction expires after three seconds, so a crash loses nothing of use.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::Secret;

const MAX_TOKENS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::discord) enum ReplyKind {
    /// A command: needs a visible reply.
    Message,
    /// A button: needs no visible reply.
    Acknowledge,
}

#[derive(Debug, Default)]
pub(in crate::discord) struct InteractionTokens(Mutex<VecDeque<(String, Secret, ReplyKind)>>);

impl InteractionTokens {
    pub(in crate::discord) fn insert(&self, interaction: &str, token: &str, reply_kind: ReplyKind) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MAX_TOKENS {
            tokens.pop_front();
        }
        tokens.push_back((interaction.to_owned(), Secret::new(token), reply_kind));
    }

    /// Each token is returned once.
    pub(in crate::discord) fn take(&self, interaction: &str) -> Option<(Secret, ReplyKind)> {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tokens.iter().rposition(|(id, _, _)| id == interaction)?;
        tokens.remove(at).map(|(_, token, reply_kind)| (token, reply_kind))
    }
}
