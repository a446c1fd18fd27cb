//! Pairing: a stranger requests a code, and the owner approves it at the machine.
//!
//! `PairingState` holds the state of one platform; functions take it by value and return the next one. Codes are known
//! here by their hash only: the caller generates, salts, hashes and compares them.
//!
//! Invariants: a code expires after an hour and approves once; a user has at most one code and gets at most one reply in
//! ten minutes; when the list is full, the oldest code is dropped; five wrong approvals within an hour lock pairing for an
//! hour, and a right one clears the count. All lists are bounded.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// 32 characters without look-alikes, so that five bits of a random byte choose one without bias.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
pub const CODE_LEN: usize = 8;

const CODE_TTL: Duration = Duration::from_secs(3600);
const REPLY_INTERVAL: Duration = Duration::from_secs(600);
const LOCKOUT: Duration = Duration::from_secs(3600);
/// A wrong approval expires with the codes that it may have guessed.
const FAILURE_TTL: Duration = CODE_TTL;
const MAX_FAILURES: usize = 5;
const MAX_PENDING: usize = 64;
const MAX_ANSWERED: usize = 1024;

/// The pairing state of one platform.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PairingState {
    /// Oldest first.
    #[serde(default)]
    pub pending: Vec<PendingCode>,
    #[serde(default)]
    pub approved: Vec<PairedUser>,
    /// Users and the times of their last reply, oldest first.
    #[serde(default)]
    pub answered: Vec<(String, Millis)>,
    #[serde(default)]
    pub failures: Vec<Millis>,
    #[serde(default)]
    pub locked_until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCode {
    pub user_id: String,
    #[serde(default)]
    pub user_name: Option<String>,
    /// Salted by the caller.
    pub code_hash: String,
    pub created_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairedUser {
    pub user_id: String,
    #[serde(default)]
    pub user_name: Option<String>,
    pub approved_at: Millis,
}

/// The reply to a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeRequest {
    /// Send the code whose hash was passed in.
    Issued,
    /// Report that pairing is locked.
    Refused,
    /// Replied recently: send nothing.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeApproval {
    Approved(PairedUser),
    /// No pending code matches. `left`: further errors before pairing is locked.
    Wrong {
        left: usize,
    },
    Locked {
        until: Millis,
    },
}

/// Generates a code from random bytes.
pub fn code(random: [u8; CODE_LEN]) -> String {
    random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

/// Normalises a typed code. `None`: not a code, so it does not count as a guess.
pub fn normalise(typed: &str) -> Option<String> {
    let code: String = typed.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let code = code.to_uppercase();
    (code.len() == CODE_LEN && code.bytes().all(|byte| ALPHABET.contains(&byte))).then_some(code)
}

/// Handles a message of a stranger. `code_hash` is used only if a code is issued.
pub fn request_code(
    state: PairingState,
    user_id: &str,
    user_name: Option<&str>,
    code_hash: String,
    now: Millis,
) -> (PairingState, CodeRequest) {
    let mut state = expire(state, now);
    if state.answered.iter().any(|(user, _)| user == user_id) {
        return (state, CodeRequest::Silent);
    }
    keep_newest(&mut state.answered, MAX_ANSWERED - 1);
    state.answered.push((user_id.to_owned(), now));
    if state.locked_until.is_some() {
        return (state, CodeRequest::Refused);
    }
    state.pending.retain(|pending| pending.user_id != user_id);
    keep_newest(&mut state.pending, MAX_PENDING - 1);
    let user_name = user_name.map(ToOwned::to_owned);
    state.pending.push(PendingCode { user_id: user_id.to_owned(), user_name, code_hash, created_at: now });
    (state, CodeRequest::Issued)
}

/// Handles a code typed by the owner. `matches` hashes and compares it in constant time.
pub fn approve(
    state: PairingState,
    matches: &dyn Fn(&PendingCode) -> bool,
    now: Millis,
) -> (PairingState, CodeApproval) {
    let mut state = expire(state, now);
    if let Some(until) = state.locked_until {
        return (state, CodeApproval::Locked { until });
    }
    let Some(found) = state.pending.iter().position(matches) else {
        return wrong(state, now);
    };
    let PendingCode { user_id, user_name, .. } = state.pending.remove(found);
    let approved = PairedUser { user_id, user_name, approved_at: now };
    state.approved.retain(|other| other.user_id != approved.user_id);
    state.approved.push(approved.clone());
    state.failures.clear();
    (state, CodeApproval::Approved(approved))
}

/// Revokes an approval. False: there was none.
pub fn revoke(mut state: PairingState, user_id: &str) -> (PairingState, bool) {
    let before = state.approved.len();
    state.approved.retain(|approved| approved.user_id != user_id);
    let revoked = state.approved.len() < before;
    (state, revoked)
}

impl PairingState {
    pub fn is_paired(&self, user_id: &str) -> bool {
        self.approved.iter().any(|approved| approved.user_id == user_id)
    }
}

fn wrong(mut state: PairingState, now: Millis) -> (PairingState, CodeApproval) {
    state.failures.push(now);
    let left = MAX_FAILURES.saturating_sub(state.failures.len());
    if left == 0 {
        state.failures.clear();
        state.locked_until = Some(now.after(LOCKOUT));
    }
    (state, CodeApproval::Wrong { left })
}

fn expire(mut state: PairingState, now: Millis) -> PairingState {
    state.pending.retain(|pending| now.since(pending.created_at) < CODE_TTL);
    state.answered.retain(|(_, at)| now.since(*at) < REPLY_INTERVAL);
    state.failures.retain(|at| now.since(*at) < FAILURE_TTL);
    state.locked_until = state.locked_until.filter(|until| now < *until);
    state
}

fn keep_newest<T>(list: &mut Vec<T>, most: usize) {
    list.drain(..list.len().saturating_sub(most));
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn at(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1000)
    }

    /// Requests a code whose hash is the user name.
    #[track_caller]
    fn request(state: PairingState, user: &str, seconds: u64, want: CodeRequest) -> PairingState {
        let (state, got) = request_code(state, user, Some("Ann"), user.to_owned(), at(seconds));
        assert_eq!(got, want, "{user} at {seconds} s");
        state
    }

    fn approve_typed(state: PairingState, code: &str, seconds: u64) -> (PairingState, CodeApproval) {
        approve(state, &|pending| pending.code_hash == code, at(seconds))
    }

    #[test]
    fn issues_one_code_in_ten_minutes() {
        let mut state = request(PairingState::default(), "u1", 0, CodeRequest::Issued);
        for seconds in [1, 60, 300, 599] {
            state = request(state, "u1", seconds, CodeRequest::Silent);
        }
        state = request(state, "u1", 600, CodeRequest::Issued);
        assert_eq!(state.pending.len(), 1, "the second code replaces the first");
    }

    #[test]
    fn strangers_cannot_block_pairing_of_the_owner() {
        let mut state = PairingState::default();
        for stranger in 0..500 {
            state = request(state, &format!("s{stranger}"), stranger, CodeRequest::Issued);
        }
        state = request(state, "owner", 500, CodeRequest::Issued);
        assert_eq!(state.pending.len(), MAX_PENDING);
        let (state, approval) = approve_typed(state, "owner", 501);
        assert!(matches!(approval, CodeApproval::Approved(_)), "{approval:?}");
        assert!(state.is_paired("owner") && !state.is_paired("s499"));
    }

    #[test]
    fn locks_pairing_for_an_hour_after_five_wrong_approvals() {
        let mut state = request(PairingState::default(), "u1", 0, CodeRequest::Issued);
        for (seconds, want) in [(1, 4), (2, 3), (3, 2), (4, 1), (5, 0)] {
            let (next, approval) = approve_typed(state, "nonsense", seconds);
            assert_eq!(approval, CodeApproval::Wrong { left: want });
            state = next;
        }
        let (state, approval) = approve_typed(state, "u1", 6);
        assert_eq!(approval, CodeApproval::Locked { until: at(3605) });
        let state = request(state, "u2", 7, CodeRequest::Refused);
        let state = request(state, "u2", 8, CodeRequest::Silent);
        let state = request(state, "u2", 3605, CodeRequest::Issued);
        let (state, approval) = approve_typed(state, "u2", 3606);
        assert!(matches!(approval, CodeApproval::Approved(_)), "{approval:?}");
        assert!(state.failures.is_empty());
    }

    #[test]
    fn right_approval_clears_wrong_ones() {
        let mut state = PairingState::default();
        for round in 0..4 {
            let user = format!("u{round}");
            state = request(state, &user, round * 10, CodeRequest::Issued);
            state = approve_typed(state, "typo", round * 10 + 1).0;
            state = approve_typed(state, &user, round * 10 + 2).0;
        }
        let (state, approval) = approve_typed(state, "typo", 50);
        assert_eq!(approval, CodeApproval::Wrong { left: 4 });
        assert_eq!(state.locked_until, None);
    }

    #[test]
    fn wrong_approvals_expire_after_an_hour() {
        let mut state = PairingState::default();
        for year in 0..20 {
            let (next, approval) = approve_typed(state, "typo", year * 31_536_000);
            assert_eq!(approval, CodeApproval::Wrong { left: 4 });
            state = next;
        }
    }

    #[test]
    fn code_approves_once_within_an_hour() {
        let state = request(PairingState::default(), "u1", 0, CodeRequest::Issued);
        let (late, approval) = approve_typed(state.clone(), "u1", 3600);
        assert_eq!(approval, CodeApproval::Wrong { left: 4 });
        assert!(late.pending.is_empty());
        let (state, _) = approve_typed(state, "u1", 3599);
        assert_eq!(approve_typed(state.clone(), "u1", 3599).1, CodeApproval::Wrong { left: 4 });
        assert_eq!(state.approved[0].user_name.as_deref(), Some("Ann"));
    }

    #[test]
    fn revoke_removes_an_approval() {
        let state = request(PairingState::default(), "u1", 0, CodeRequest::Issued);
        let (state, _) = approve_typed(state, "u1", 1);
        let (state, revoked) = revoke(state, "u1");
        assert!(revoked && !state.is_paired("u1"));
        assert!(!revoke(state, "u1").1);
    }

    #[test]
    fn codes_use_every_character_equally() {
        assert_eq!(code([0, 1, 7, 8, 23, 24, 31, 255]), "ABHJZ299");
        for byte in 0..=255u8 {
            assert_eq!(code([byte; 8]), code([byte % 32; 8]));
        }
    }

    #[test]
    fn normalises_case_and_gaps_of_typed_codes_only() {
        assert_eq!(normalise(" abcd-efgh \n").as_deref(), Some("ABCDEFGH"));
        for typed in ["", "ABCDEFG", "ABCDEFGHJ", "ABCDEFG0", "ÄBCDEFGH"] {
            assert_eq!(normalise(typed), None, "{typed:?}");
        }
    }
}
