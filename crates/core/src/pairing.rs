//! Pairing: a stranger asks for a code, the owner approves it at the machine.
//!
//! One `Book` per platform holds everything; the functions take it by value and give back the next one.
//! Codes are known here by their hash only: the caller makes, salts, hashes and compares them.
//!
//! Invariants: a code lives an hour and approves once; a user holds at most one; a user gets at most one
//! answer in ten minutes; strangers cannot use up the places (the oldest code gives way); five wrong
//! approvals within an hour close pairing for an hour, and a right one forgets the wrong ones. Everything
//! is bounded.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// No letter that looks like a digit. 32 of them, so five bits of a random byte choose one without bias.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
pub const CODE_LEN: usize = 8;

const CODE_LIFE: Duration = Duration::from_secs(3600);
const QUIET: Duration = Duration::from_secs(600);
const LOCKOUT: Duration = Duration::from_secs(3600);
/// A wrong approval is forgotten after the life of the code it may have been guessing.
const FAILURE_LIFE: Duration = CODE_LIFE;
const MOST_FAILURES: usize = 5;
const MOST_PENDING: usize = 64;
const MOST_STAMPS: usize = 1024;

/// The pairing state of one platform.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Book {
    /// Oldest first.
    #[serde(default)]
    pub pending: Vec<Pending>,
    #[serde(default)]
    pub approved: Vec<Approved>,
    /// When each user last got an answer, oldest first.
    #[serde(default)]
    pub answered: Vec<(String, Millis)>,
    /// When approvals failed.
    #[serde(default)]
    pub failures: Vec<Millis>,
    #[serde(default)]
    pub locked_until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub user_id: String,
    #[serde(default)]
    pub user_name: Option<String>,
    /// Salted by the caller, in whatever form it compares.
    pub code_hash: String,
    pub created_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    pub user_id: String,
    #[serde(default)]
    pub user_name: Option<String>,
    pub approved_at: Millis,
}

/// What a stranger's message leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Tell them the code whose hash was passed in.
    Issued,
    /// Tell them that pairing is closed for now.
    Refused,
    /// Answered a short while ago: say nothing.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    Approved(Approved),
    /// No pending code matches; this many more errors close pairing.
    Wrong {
        left: usize,
    },
    Locked {
        until: Millis,
    },
}

/// A code from random bytes.
pub fn code(random: [u8; CODE_LEN]) -> String {
    random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

/// A code as a person typed it. `None`: it cannot be one, so nothing was guessed.
pub fn normalise(typed: &str) -> Option<String> {
    let code: String = typed.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let code = code.to_uppercase();
    (code.len() == CODE_LEN && code.bytes().all(|byte| ALPHABET.contains(&byte))).then_some(code)
}

/// A stranger wrote. `code_hash` is used only if a code is issued.
pub fn request(
    book: Book,
    user_id: &str,
    user_name: Option<&str>,
    code_hash: String,
    now: Millis,
) -> (Book, Request) {
    let mut book = swept(book, now);
    if book.answered.iter().any(|(user, _)| user == user_id) {
        return (book, Request::Silent);
    }
    keep_newest(&mut book.answered, MOST_STAMPS - 1);
    book.answered.push((user_id.to_owned(), now));
    if book.locked_until.is_some() {
        return (book, Request::Refused);
    }
    book.pending.retain(|pending| pending.user_id != user_id);
    keep_newest(&mut book.pending, MOST_PENDING - 1);
    let user_name = user_name.map(ToOwned::to_owned);
    book.pending.push(Pending { user_id: user_id.to_owned(), user_name, code_hash, created_at: now });
    (book, Request::Issued)
}

/// The owner typed a code. `matches` hashes and compares it, in constant time.
pub fn approve(book: Book, matches: &dyn Fn(&Pending) -> bool, now: Millis) -> (Book, Approval) {
    let mut book = swept(book, now);
    if let Some(until) = book.locked_until {
        return (book, Approval::Locked { until });
    }
    let Some(found) = book.pending.iter().position(matches) else {
        return wrong(book, now);
    };
    let Pending { user_id, user_name, .. } = book.pending.remove(found);
    let approved = Approved { user_id, user_name, approved_at: now };
    book.approved.retain(|other| other.user_id != approved.user_id);
    book.approved.push(approved.clone());
    book.failures.clear();
    (book, Approval::Approved(approved))
}

/// Takes an approval back. False: there was none.
pub fn revoke(mut book: Book, user_id: &str) -> (Book, bool) {
    let before = book.approved.len();
    book.approved.retain(|approved| approved.user_id != user_id);
    let revoked = book.approved.len() < before;
    (book, revoked)
}

impl Book {
    pub fn is_paired(&self, user_id: &str) -> bool {
        self.approved.iter().any(|approved| approved.user_id == user_id)
    }
}

fn wrong(mut book: Book, now: Millis) -> (Book, Approval) {
    book.failures.push(now);
    let left = MOST_FAILURES.saturating_sub(book.failures.len());
    if left == 0 {
        book.failures.clear();
        book.locked_until = Some(now.after(LOCKOUT));
    }
    (book, Approval::Wrong { left })
}

/// The book without what time has undone.
fn swept(mut book: Book, now: Millis) -> Book {
    book.pending.retain(|pending| now.since(pending.created_at) < CODE_LIFE);
    book.answered.retain(|(_, at)| now.since(*at) < QUIET);
    book.failures.retain(|at| now.since(*at) < FAILURE_LIFE);
    book.locked_until = book.locked_until.filter(|until| now < *until);
    book
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

    /// Requests a code whose "hash" is the user's own name.
    #[track_caller]
    fn ask(book: Book, user: &str, seconds: u64, want: Request) -> Book {
        let (book, got) = request(book, user, Some("Ann"), user.to_owned(), at(seconds));
        assert_eq!(got, want, "{user} at {seconds} s");
        book
    }

    fn type_in(book: Book, code: &str, seconds: u64) -> (Book, Approval) {
        approve(book, &|pending| pending.code_hash == code, at(seconds))
    }

    #[test]
    fn five_messages_give_one_code_then_silence_for_ten_minutes() {
        let mut book = ask(Book::default(), "u1", 0, Request::Issued);
        for seconds in [1, 60, 300, 599] {
            book = ask(book, "u1", seconds, Request::Silent);
        }
        book = ask(book, "u1", 600, Request::Issued);
        assert_eq!(book.pending.len(), 1, "the second code replaces the first");
    }

    #[test]
    fn strangers_do_not_use_up_the_places_of_the_owner() {
        let mut book = Book::default();
        for stranger in 0..500 {
            book = ask(book, &format!("s{stranger}"), stranger, Request::Issued);
        }
        book = ask(book, "owner", 500, Request::Issued);
        assert_eq!(book.pending.len(), MOST_PENDING);
        let (book, approval) = type_in(book, "owner", 501);
        assert!(matches!(approval, Approval::Approved(_)), "{approval:?}");
        assert!(book.is_paired("owner") && !book.is_paired("s499"));
    }

    #[test]
    fn five_wrong_approvals_close_pairing_for_an_hour() {
        let mut book = ask(Book::default(), "u1", 0, Request::Issued);
        for (seconds, want) in [(1, 4), (2, 3), (3, 2), (4, 1), (5, 0)] {
            let (next, approval) = type_in(book, "nonsense", seconds);
            assert_eq!(approval, Approval::Wrong { left: want });
            book = next;
        }
        let (book, approval) = type_in(book, "u1", 6);
        assert_eq!(approval, Approval::Locked { until: at(3605) });
        let book = ask(book, "u2", 7, Request::Refused);
        let book = ask(book, "u2", 8, Request::Silent);
        let book = ask(book, "u2", 3605, Request::Issued);
        let (book, approval) = type_in(book, "u2", 3606);
        assert!(matches!(approval, Approval::Approved(_)), "{approval:?}");
        assert!(book.failures.is_empty());
    }

    #[test]
    fn a_right_approval_forgets_the_wrong_ones() {
        let mut book = Book::default();
        for round in 0..4 {
            let user = format!("u{round}");
            book = ask(book, &user, round * 10, Request::Issued);
            book = type_in(book, "typo", round * 10 + 1).0;
            book = type_in(book, &user, round * 10 + 2).0;
        }
        let (book, approval) = type_in(book, "typo", 50);
        assert_eq!(approval, Approval::Wrong { left: 4 });
        assert_eq!(book.locked_until, None);
    }

    #[test]
    fn wrong_approvals_fade_within_an_hour() {
        let mut book = Book::default();
        for year in 0..20 {
            let (next, approval) = type_in(book, "typo", year * 31_536_000);
            assert_eq!(approval, Approval::Wrong { left: 4 });
            book = next;
        }
    }

    #[test]
    fn a_code_approves_once_and_lives_an_hour() {
        let book = ask(Book::default(), "u1", 0, Request::Issued);
        let (late, approval) = type_in(book.clone(), "u1", 3600);
        assert_eq!(approval, Approval::Wrong { left: 4 });
        assert!(late.pending.is_empty());
        let (book, _) = type_in(book, "u1", 3599);
        assert_eq!(type_in(book.clone(), "u1", 3599).1, Approval::Wrong { left: 4 });
        assert_eq!(book.approved[0].user_name.as_deref(), Some("Ann"));
    }

    #[test]
    fn revoking_undoes_an_approval() {
        let book = ask(Book::default(), "u1", 0, Request::Issued);
        let (book, _) = type_in(book, "u1", 1);
        let (book, revoked) = revoke(book, "u1");
        assert!(revoked && !book.is_paired("u1"));
        assert!(!revoke(book, "u1").1);
    }

    #[test]
    fn codes_use_the_low_five_bits_and_every_letter_equally() {
        assert_eq!(code([0, 1, 7, 8, 23, 24, 31, 255]), "ABHJZ299");
        for byte in 0..=255u8 {
            assert_eq!(code([byte; 8]), code([byte % 32; 8]));
        }
    }

    #[test]
    fn typed_codes_are_forgiven_case_and_gaps_only() {
        assert_eq!(normalise(" abcd-efgh \n").as_deref(), Some("ABCDEFGH"));
        for typed in ["", "ABCDEFG", "ABCDEFGHJ", "ABCDEFG0", "ÄBCDEFGH"] {
            assert_eq!(normalise(typed), None, "{typed:?}");
        }
    }
}
