//! The tokens of interactions that wait for their answer: in memory only, the newest few.
//!
//! An interaction must be answered within three seconds, so a crash loses nothing that was still of use.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::Secret;

const MOST: usize = 256;

/// What kind of answer an interaction wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// A command: something must be shown, to its author alone.
    Words,
    /// A button: silence is enough.
    Nod,
}

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<VecDeque<(String, Secret, Wants)>>);

impl Tokens {
    pub(super) fn put(&self, interaction: &str, token: &str, wants: Wants) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST {
            tokens.pop_front();
        }
        tokens.push_back((interaction.to_owned(), Secret::new(token), wants));
    }

    /// Each is given out once.
    pub(super) fn take(&self, interaction: &str) -> Option<(Secret, Wants)> {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tokens.iter().rposition(|(id, _, _)| id == interaction)?;
        tokens.remove(at).map(|(_, token, wants)| (token, wants))
    }
}
