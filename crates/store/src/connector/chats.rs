//! Chats that an instance may write to, and idempotency of requests from gateways.

use petasos_core::{InstanceId, Millis, Platform, SessionKey, TenantId};
use rusqlite::{OptionalExtension, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::at;

/// A chat in which an instance received messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceChat {
    pub platform: Platform,
    pub chat_id: String,
    pub session_key: SessionKey,
    pub thread_id: Option<String>,
    pub scope_id: Option<String>,
    pub chat_type: String,
    pub name: Option<String>,
}

/// State of a request, by its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestState {
    New,
    /// Being executed, or interrupted by a crash.
    InProgress,
    /// Finished, with its answer as JSON.
    Answered(String),
}

impl Reads {
    /// The chat, if the instance has received a message from it.
    pub fn known_chat(
        &self,
        instance: &InstanceId,
        platform: Platform,
        chat: &str,
    ) -> Result<Option<InstanceChat>> {
        let mut read = self.sql(
            "SELECT session_key, chat_type, name, thread_id, scope_id FROM chats
             WHERE instance = ?1 AND platform = ?2 AND chat_id = ?3 ORDER BY at DESC LIMIT 1",
        )?;
        let found = read.query_row([instance.as_str(), platform.as_str(), chat], |row| {
            let session_key = SessionKey(row.get(0)?);
            let chat_type = row.get(1)?;
            let name = row.get(2)?;
            let chat_id = chat.to_owned();
            let thread_id = row.get(3)?;
            let scope_id = row.get(4)?;
            Ok(InstanceChat { platform, chat_id, session_key, thread_id, scope_id, chat_type, name })
        });
        Ok(found.optional()?)
    }

    /// Whether the instance has received a message from this thread.
    pub fn knows_thread(
        &self,
        instance: &InstanceId,
        platform: Platform,
        chat: &str,
        thread: &str,
    ) -> Result<bool> {
        let mut read = self.sql(
            "SELECT 1 FROM chats WHERE instance = ?1 AND platform = ?2 AND chat_id = ?3 AND thread_id = ?4",
        )?;
        Ok(read.exists([instance.as_str(), platform.as_str(), chat, thread])?)
    }

    /// Whether the instance has received a message from this scope, or from the chat of that id.
    pub fn knows_scope(&self, instance: &InstanceId, platform: Platform, scope: &str) -> Result<bool> {
        let mut read = self.sql(
            "SELECT 1 FROM chats WHERE instance = ?1 AND platform = ?2 AND (scope_id = ?3 OR chat_id = ?3)",
        )?;
        Ok(read.exists([instance.as_str(), platform.as_str(), scope])?)
    }

    /// Whether this message was created by a remembered request of the instance.
    pub fn is_own_message(&self, instance: &InstanceId, message: &str) -> Result<bool> {
        let mut read = self.sql("SELECT 1 FROM requests WHERE instance = ?1 AND message = ?2")?;
        Ok(read.exists([instance.as_str(), message])?)
    }

    /// Instance and chat of a session of this tenant.
    pub fn session_of(
        &self,
        tenant: &TenantId,
        session_key: &SessionKey,
    ) -> Result<Option<(InstanceId, String)>> {
        let mut read = self.sql(
            "SELECT c.instance, c.chat_id FROM chats c JOIN instances i ON i.id = c.instance
             WHERE c.session_key = ?2 AND i.tenant = ?1 ORDER BY c.at DESC LIMIT 1",
        )?;
        let found = read.query_row([tenant.as_str(), session_key.as_str()], |row| {
            Ok((InstanceId(row.get(0)?), row.get(1)?))
        });
        Ok(found.optional()?)
    }

    pub fn request(&self, instance: &InstanceId, request: &str) -> Result<RequestState> {
        let mut read = self.sql("SELECT answer FROM requests WHERE instance = ?1 AND request = ?2")?;
        let found: Option<Option<String>> =
            read.query_row([instance.as_str(), request], |row| row.get(0)).optional()?;
        Ok(match found {
            None => RequestState::New,
            Some(None) => RequestState::InProgress,
            Some(Some(answer)) => RequestState::Answered(answer),
        })
    }
}

impl Tx<'_> {
    pub(super) fn put_chat(&self, instance: &InstanceId, chat: &InstanceChat, now: Millis) -> Result<()> {
        self.sql(
            "INSERT INTO chats (instance, platform, chat_id, session_key, thread_id, scope_id, chat_type, name, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (instance, platform, chat_id, session_key)
             DO UPDATE SET thread_id = excluded.thread_id, scope_id = excluded.scope_id,
                 chat_type = excluded.chat_type, name = excluded.name, at = excluded.at",
        )?
        .execute(params![
            instance.as_str(),
            chat.platform.as_str(),
            chat.chat_id,
            chat.session_key.as_str(),
            chat.thread_id,
            chat.scope_id,
            chat.chat_type,
            chat.name,
            at(now)
        ])?;
        Ok(())
    }

    /// Makes the chat exclusive to this instance: other instances lose it and their permissions for it.
    pub fn assign_chat(&self, platform: Platform, chat: &str, instance: &InstanceId) -> Result<()> {
        for table in ["chats", "vault"] {
            let take = format!("DELETE FROM {table} WHERE platform = ?1 AND chat_id = ?2 AND instance != ?3");
            self.sql(&take)?.execute([platform.as_str(), chat, instance.as_str()])?;
        }
        Ok(())
    }

    /// Call before the platform is called. Any result but `New` means: do not call it.
    pub fn begin_request(&self, instance: &InstanceId, request: &str, now: Millis) -> Result<RequestState> {
        let known = self.request(instance, request)?;
        if known == RequestState::New {
            self.sql("INSERT INTO requests (instance, request, at) VALUES (?1, ?2, ?3)")?
                .execute(params![instance.as_str(), request, at(now)])?;
        }
        Ok(known)
    }

    /// `message`: the platform message that the request created.
    pub fn finish_request(
        &self,
        instance: &InstanceId,
        request: &str,
        answer: &str,
        message: Option<&str>,
    ) -> Result<()> {
        self.sql("UPDATE requests SET answer = ?3, message = ?4 WHERE instance = ?1 AND request = ?2")?
            .execute(params![instance.as_str(), request, answer, message])?;
        Ok(())
    }

    /// For a request that certainly had no effect, so that it may be repeated.
    pub fn delete_request(&self, instance: &InstanceId, request: &str) -> Result<()> {
        self.sql("DELETE FROM requests WHERE instance = ?1 AND request = ?2")?
            .execute([instance.as_str(), request])?;
        Ok(())
    }

    /// Deletes expired identities of events and of requests.
    pub fn prune_identities(&self, seen: Millis, requests: Millis) -> Result<()> {
        self.sql("DELETE FROM seen WHERE at < ?1")?.execute([at(seen)])?;
        self.sql("DELETE FROM requests WHERE at < ?1")?.execute([at(requests)])?;
        Ok(())
    }
}
