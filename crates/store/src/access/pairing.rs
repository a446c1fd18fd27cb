//! Pairing state per platform. Codes are generated here, shown once, and stored as `salt:hash`.

use aws_lc_rs::{constant_time, digest};
use petasos_core::pairing::{self, CODE_LEN, CodeApproval, CodeRequest, PairingState, PendingCode};
use petasos_core::text::hex;
use petasos_core::{Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::access::logins::random_hex;
use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{json, parse, skip_unreadable};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingReply {
    /// Send this code; it is not stored in clear text.
    Code(String),
    Refused,
    Silent,
}

impl Reads {
    pub fn pairing_state(&self, platform: Platform) -> Result<PairingState> {
        let mut read = self.sql("SELECT book FROM pairing WHERE platform = ?1")?;
        let found: Option<String> = read.query_row([platform.as_str()], |row| row.get(0)).optional()?;
        found.map_or_else(|| Ok(PairingState::default()), |text| parse(&text, "pairing book"))
    }

    /// An unreadable pairing state approves no user.
    pub fn is_paired(&self, platform: Platform, user_id: &str) -> Result<bool> {
        let book = skip_unreadable(self.pairing_state(platform)).transpose()?;
        Ok(book.is_some_and(|book| book.is_paired(user_id)))
    }

    pub fn pairing_states(&self) -> Result<Vec<(Platform, PairingState)>> {
        let mut read = self.sql("SELECT platform, book FROM pairing ORDER BY platform")?;
        let mut rows = read.query([])?;
        let mut books = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let book: String = row.get(1)?;
            if let Some(platform) = Platform::parse(&name) {
                books.push((platform, parse(&book, "pairing book")?));
            }
        }
        Ok(books)
    }
}

impl Tx<'_> {
    pub fn put_pairing_state(&self, platform: Platform, book: &PairingState) -> Result<()> {
        self.sql(
            "INSERT INTO pairing (platform, book) VALUES (?1, ?2)
             ON CONFLICT (platform) DO UPDATE SET book = excluded.book",
        )?
        .execute(params![platform.as_str(), json(book)?])?;
        Ok(())
    }

    /// Handles a message from an unapproved user. An unreadable pairing state is left for the operator to repair, and the
    /// request gets no reply.
    pub fn pairing_request(
        &self,
        platform: Platform,
        user_id: &str,
        user_name: Option<&str>,
        now: Millis,
    ) -> Result<PairingReply> {
        let Some(book) = skip_unreadable(self.pairing_state(platform)).transpose()? else {
            return Ok(PairingReply::Silent);
        };
        let mut random = [0_u8; CODE_LEN];
        getrandom::fill(&mut random)
            .map_err(|_| Error::Io("the system provides no random numbers".into()))?;
        let code = pairing::code(random);
        let salt = random_hex::<16>()?;
        let hash = salted_hash(&salt, &code);
        let (next, request) = pairing::request_code(book.clone(), user_id, user_name, hash, now);
        if next != book {
            self.put_pairing_state(platform, &next)?;
        }
        Ok(match request {
            CodeRequest::Issued => PairingReply::Code(code),
            CodeRequest::Refused => PairingReply::Refused,
            CodeRequest::Silent => PairingReply::Silent,
        })
    }

    /// Approves the code that the owner typed. `None`: the text is not a well-formed code.
    pub fn pairing_approve(
        &self,
        platform: Platform,
        typed: &str,
        now: Millis,
    ) -> Result<Option<CodeApproval>> {
        let Some(code) = pairing::normalise(typed) else {
            return Ok(None);
        };
        let (book, approval) =
            pairing::approve(self.pairing_state(platform)?, &|pending| code_matches(pending, &code), now);
        self.put_pairing_state(platform, &book)?;
        Ok(Some(approval))
    }

    /// Lifts the lockout after failed approvals. `false`: there was none.
    pub fn pairing_unlock(&self, platform: Platform) -> Result<bool> {
        let book = self.pairing_state(platform)?;
        let closed = book.locked_until.is_some();
        self.put_pairing_state(platform, &PairingState { locked_until: None, failures: Vec::new(), ..book })?;
        Ok(closed)
    }

    /// `false`: the user was not approved.
    pub fn pairing_revoke(&self, platform: Platform, user_id: &str) -> Result<bool> {
        let (book, revoked) = pairing::revoke(self.pairing_state(platform)?, user_id);
        self.put_pairing_state(platform, &book)?;
        Ok(revoked)
    }
}

fn salted_hash(salt: &str, code: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt.as_bytes());
    context.update(code.as_bytes());
    format!("{salt}:{}", hex(context.finish().as_ref()))
}

fn code_matches(pending: &PendingCode, code: &str) -> bool {
    let Some((salt, _)) = pending.code_hash.split_once(':') else {
        return false;
    };
    constant_time::verify_slices_are_equal(salted_hash(salt, code).as_bytes(), pending.code_hash.as_bytes())
        .is_ok()
}
