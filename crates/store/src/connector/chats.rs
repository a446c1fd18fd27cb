//! Where instances may speak, and what they asked for that must not happen twice.

use petasos_core::{Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::at;

/// A conversation as the connector knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    pub platform: Platform,
    pub chat_id: String,
    pub session_key: String,
    pub thread_id: Option<String>,
    /// The guild or workspace that it is in.
    pub scope_id: Option<String>,
    pub chat_type: String,
    pub name: Option<String>,
}

/// What is known of something that a gateway asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    New,
    /// Somebody is at it, or was when the process died.
    Begun,
    /// The answer, as JSON.
    Answered(String),
}

impl Reads {
    /// A chat in which the instance was spoken to; `None`: it never was.
    pub fn met(&self, instance: &str, platform: Platform, chat: &str) -> Result<Option<Chat>> {
        let mut read = self.sql(
            "SELECT session_key, chat_type, name, thread_id, scope_id FROM chats
             WHERE instance = ?1 AND platform = ?2 AND chat_id = ?3 ORDER BY at DESC LIMIT 1",
        )?;
        let found = read.query_row([instance, platform.as_str(), chat], |row| {
            let (session_key, chat_type, name) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (chat_id, thread_id, scope_id) = (chat.to_owned(), row.get(3)?, row.get(4)?);
            Ok(Chat { platform, chat_id, session_key, thread_id, scope_id, chat_type, name })
        });
        Ok(found.optional()?)
    }

    /// Whether the instance was spoken to in this thread of the chat.
    pub fn met_in(&self, instance: &str, platform: Platform, chat: &str, thread: &str) -> Result<bool> {
        let mut read = self.sql(
            "SELECT 1 FROM chats WHERE instance = ?1 AND platform = ?2 AND chat_id = ?3 AND thread_id = ?4",
        )?;
        Ok(read.exists([instance, platform.as_str(), chat, thread])?)
    }

    /// Whether the instance was spoken to anywhere in this scope, or in the chat of that name.
    pub fn met_in_scope(&self, instance: &str, platform: Platform, scope: &str) -> Result<bool> {
        let mut read = self.sql(
            "SELECT 1 FROM chats WHERE instance = ?1 AND platform = ?2 AND (scope_id = ?3 OR chat_id = ?3)",
        )?;
        Ok(read.exists([instance, platform.as_str(), scope])?)
    }

    /// Whether this message came of something that the instance asked for, as far back as that is remembered.
    pub fn wrote(&self, instance: &str, message: &str) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM requests WHERE instance = ?1 AND message = ?2")?;
        Ok(read.exists([instance, message])?)
    }

    /// The instance and the chat of a session, within a tenant.
    pub fn session_of(&self, tenant: &str, session_key: &str) -> Result<Option<(String, String)>> {
        let mut read = self.sql(
            "SELECT c.instance, c.chat_id FROM chats c JOIN instances i ON i.id = c.instance
             WHERE c.session_key = ?2 AND i.tenant = ?1 ORDER BY c.at DESC LIMIT 1",
        )?;
        Ok(read.query_row([tenant, session_key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    pub fn request(&self, instance: &str, request: &str) -> Result<Request> {
        let mut read = self.sql("SELECT answer FROM requests WHERE instance = ?1 AND request = ?2")?;
        let found: Option<Option<String>> =
            read.query_row([instance, request], |row| row.get(0)).optional()?;
        Ok(match found {
            None => Request::New,
            Some(None) => Request::Begun,
            Some(Some(answer)) => Request::Answered(answer),
        })
    }
}

impl Tx<'_> {
    pub(super) fn meet(&self, instance: &str, chat: &Chat, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO chats (instance, platform, chat_id, session_key, thread_id, scope_id, chat_type, name, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (instance, platform, chat_id, session_key)
             DO UPDATE SET thread_id = excluded.thread_id, scope_id = excluded.scope_id,
                 chat_type = excluded.chat_type, name = excluded.name, at = excluded.at",
        )?
        .execute(params![
            instance,
            chat.platform.as_str(),
            chat.chat_id,
            chat.session_key,
            chat.thread_id,
            chat.scope_id,
            chat.chat_type,
            chat.name,
            at(now)
        ])?;
        Ok(())
    }

    /// The chat is this instance's alone from now on: what others had of it, they have no longer.
    pub fn take_chat(&self, platform: Platform, chat: &str, instance: &str) -> Result<()> {
        for table in ["chats", "vault"] {
            let take = format!("DELETE FROM {table} WHERE platform = ?1 AND chat_id = ?2 AND instance != ?3");
            self.sql(&take)?.execute([platform.as_str(), chat, instance])?;
        }
        Ok(())
    }

    /// Before the platform is asked. Anything but `New`: leave it alone.
    pub fn begin_request(&self, instance: &str, request: &str, now: Millis) -> Result<Request> {
        let known = self.request(instance, request)?;
        if known == Request::New {
            self.sql("INSERT INTO requests (instance, request, at) VALUES (?1, ?2, ?3)")?
                .execute(params![instance, request, at(now)])?;
        }
        Ok(known)
    }

    /// `message`: what came of it.
    pub fn answer_request(
        &self,
        instance: &str,
        request: &str,
        answer: &str,
        message: Option<&str>,
    ) -> Result<()> {
        self.sql("UPDATE requests SET answer = ?3, message = ?4 WHERE instance = ?1 AND request = ?2")?
            .execute(params![instance, request, answer, message])?;
        Ok(())
    }

    /// It certainly had no effect: whoever asks again may have it.
    pub fn forget_request(&self, instance: &str, request: &str) -> Result<()> {
        self.sql("DELETE FROM requests WHERE instance = ?1 AND request = ?2")?
            .execute([instance, request])?;
        Ok(())
    }

    /// What is older than this is of no use any more: identities of events, and of requests.
    pub fn forget_before(&self, seen: Millis, requests: Millis) -> Result<()> {
        self.sql("DELETE FROM seen WHERE at < ?1")?.execute([at(seen)])?;
        self.sql("DELETE FROM requests WHERE at < ?1")?.execute([at(requests)])?;
        Ok(())
    }
}
