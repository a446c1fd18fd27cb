//! Pairing books, one per platform. Codes are made here, shown once, and stored as `salt:hash`.

use aws_lc_rs::{constant_time, digest};
use petasos_core::pairing::{self, Approval, Book, CODE_LEN, Pending, Request};
use petasos_core::{Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::logins::random_hex;
use crate::value::{json, legible, parse};

/// What to tell a stranger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingAnswer {
    /// This code, once.
    Code(String),
    Refused,
    Silent,
}

impl Reads {
    pub fn pairing_book(&self, platform: Platform) -> Result<Book> {
        let mut read = self.sql("SELECT book FROM pairing WHERE platform = ?1")?;
        let found: Option<String> = read.query_row([platform.as_str()], |row| row.get(0)).optional()?;
        found.map_or_else(|| Ok(Book::default()), |text| parse(&text, "pairing book"))
    }

    /// A book that cannot be read lets nobody in, and stops nobody else's message.
    pub fn is_paired(&self, platform: Platform, user_id: &str) -> Result<bool> {
        let book = legible(self.pairing_book(platform)).transpose()?;
        Ok(book.is_some_and(|book| book.is_paired(user_id)))
    }

    /// Every platform that has one.
    pub fn pairing_books(&self) -> Result<Vec<(Platform, Book)>> {
        let mut read = self.sql("SELECT platform, book FROM pairing ORDER BY platform")?;
        let mut rows = read.query([])?;
        let mut books = Vec::new();
        while let Some(row) = rows.next()? {
            let (name, book): (String, String) = (row.get(0)?, row.get(1)?);
            if let Some(platform) = Platform::parse(&name) {
                books.push((platform, parse(&book, "pairing book")?));
            }
        }
        Ok(books)
    }
}

impl Tx<'_> {
    pub fn put_pairing_book(&self, platform: Platform, book: &Book) -> Result<()> {
        self.sql(
            "INSERT INTO pairing (platform, book) VALUES (?1, ?2)
             ON CONFLICT (platform) DO UPDATE SET book = excluded.book",
        )?
        .execute(params![platform.as_str(), json(book)?])?;
        Ok(())
    }

    /// A stranger wrote. A book that cannot be read is left as it is, for a person to mend, and nobody is
    /// answered meanwhile.
    pub fn pairing_request(
        &self,
        platform: Platform,
        user_id: &str,
        user_name: Option<&str>,
        now: Millis,
    ) -> Result<PairingAnswer> {
        let Some(book) = legible(self.pairing_book(platform)).transpose()? else {
            return Ok(PairingAnswer::Silent);
        };
        let mut random = [0_u8; CODE_LEN];
        getrandom::fill(&mut random).map_err(|_| Error::Io("the system gives no random numbers".into()))?;
        let code = pairing::code(random);
        let salt = random_hex::<16>()?;
        let hash = hashed(&salt, &code);
        let (next, request) = pairing::request(book.clone(), user_id, user_name, hash, now);
        if next != book {
            self.put_pairing_book(platform, &next)?;
        }
        Ok(match request {
            Request::Issued => PairingAnswer::Code(code),
            Request::Refused => PairingAnswer::Refused,
            Request::Silent => PairingAnswer::Silent,
        })
    }

    /// The owner typed a code. `None`: it cannot be one.
    pub fn pairing_approve(&self, platform: Platform, typed: &str, now: Millis) -> Result<Option<Approval>> {
        let Some(code) = pairing::normalise(typed) else {
            return Ok(None);
        };
        let (book, approval) =
            pairing::approve(self.pairing_book(platform)?, &|pending| fits(pending, &code), now);
        self.put_pairing_book(platform, &book)?;
        Ok(Some(approval))
    }

    /// The owner opens pairing again. `false`: it was not closed.
    pub fn pairing_unlock(&self, platform: Platform) -> Result<bool> {
        let book = self.pairing_book(platform)?;
        let closed = book.locked_until.is_some();
        self.put_pairing_book(platform, &Book { locked_until: None, failures: Vec::new(), ..book })?;
        Ok(closed)
    }

    /// `false`: the user was not approved.
    pub fn pairing_revoke(&self, platform: Platform, user_id: &str) -> Result<bool> {
        let (book, revoked) = pairing::revoke(self.pairing_book(platform)?, user_id);
        self.put_pairing_book(platform, &book)?;
        Ok(revoked)
    }
}

fn hashed(salt: &str, code: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt.as_bytes());
    context.update(code.as_bytes());
    let hex: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{salt}:{hex}")
}

fn fits(pending: &Pending, code: &str) -> bool {
    let Some((salt, _)) = pending.code_hash.split_once(':') else {
        return false;
    };
    constant_time::verify_slices_are_equal(hashed(salt, code).as_bytes(), pending.code_hash.as_bytes())
        .is_ok()
}
