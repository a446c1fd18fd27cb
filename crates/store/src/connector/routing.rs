//! Routing of authors, scopes and link codes to instances, and the address policy of each instance.

use petasos_core::{InstanceId, Millis, Platform};
use rusqlite::{OptionalExtension, params};

use crate::access::logins::{hash, random_hex};
use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, json, parse};

/// Which messages an instance receives in shared chats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPolicy {
    /// Only messages addressed to the bot.
    pub require_address: bool,
    /// Chats and scopes in which it receives every message.
    pub free_scopes: Vec<String>,
    pub other_bots: bool,
}

impl Default for ChatPolicy {
    fn default() -> Self {
        Self { require_address: true, free_scopes: vec![], other_bots: false }
    }
}

impl Reads {
    pub fn instance_of_author(&self, platform: Platform, user: &str) -> Result<Option<InstanceId>> {
        let mut read = self.sql("SELECT instance FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(read.query_row([platform.as_str(), user], |row| row.get(0).map(InstanceId)).optional()?)
    }

    /// Instance for direct messages of this author.
    pub fn instance_of_direct(&self, platform: Platform, user: &str) -> Result<Option<InstanceId>> {
        let mut read =
            self.sql("SELECT coalesce(direct, instance) FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(read.query_row([platform.as_str(), user], |row| row.get(0).map(InstanceId)).optional()?)
    }

    /// Explicit permission of a user; `None`: the policy applies. While denials may be lost, it does not.
    pub fn principal(&self, instance: &InstanceId, platform: Platform, user: &str) -> Result<Option<bool>> {
        let mut read = self
            .sql("SELECT allowed FROM principals WHERE instance = ?1 AND platform = ?2 AND user_id = ?3")?;
        let stored: Option<bool> =
            read.query_row([instance.as_str(), platform.as_str(), user], |row| row.get(0)).optional()?;
        if stored.is_none() && self.are_denials_lost()? {
            return Ok(Some(false));
        }
        Ok(stored)
    }

    pub fn instance_of_scope(&self, platform: Platform, scope: &str) -> Result<Option<InstanceId>> {
        let mut read = self.sql("SELECT instance FROM scopes WHERE platform = ?1 AND scope_id = ?2")?;
        Ok(read.query_row([platform.as_str(), scope], |row| row.get(0).map(InstanceId)).optional()?)
    }

    pub fn policy(&self, instance: &InstanceId, platform: Platform) -> Result<ChatPolicy> {
        let mut read = self.sql(
            "SELECT require_address, free_scopes, other_bots FROM policies WHERE instance = ?1 AND platform = ?2",
        )?;
        let found: Option<(bool, String, bool)> = read
            .query_row([instance.as_str(), platform.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((require_address, scopes, other_bots)) = found else { return Ok(ChatPolicy::default()) };
        Ok(ChatPolicy { require_address, free_scopes: parse(&scopes, "policy")?, other_bots })
    }
}

impl Tx<'_> {
    /// Routes this author to this instance only.
    pub fn bind_author(&self, platform: Platform, user: &str, instance: &InstanceId) -> Result<()> {
        self.require_instance(instance)?;
        self.sql(
            "INSERT INTO authors (platform, user_id, instance) VALUES (?1, ?2, ?3)
             ON CONFLICT (platform, user_id) DO UPDATE SET instance = excluded.instance, direct = NULL",
        )?
        .execute([platform.as_str(), user, instance.as_str()])?;
        Ok(())
    }

    /// Routes an author's direct messages to another instance of the same tenant. `false`: it is another tenant's author.
    pub fn assign_direct_messages(
        &self,
        platform: Platform,
        user: &str,
        instance: &InstanceId,
    ) -> Result<bool> {
        let mut take = self.sql(
            "UPDATE authors SET direct = ?3 WHERE platform = ?1 AND user_id = ?2
             AND (SELECT tenant FROM instances WHERE id = authors.instance)
                 = (SELECT tenant FROM instances WHERE id = ?3)",
        )?;
        Ok(take.execute([platform.as_str(), user, instance.as_str()])? > 0)
    }

    /// `None` removes the permission.
    pub fn put_principal(
        &self,
        instance: &InstanceId,
        platform: Platform,
        user: &str,
        allowed: Option<bool>,
    ) -> Result<()> {
        let Some(allowed) = allowed else {
            self.sql("DELETE FROM principals WHERE instance = ?1 AND platform = ?2 AND user_id = ?3")?
                .execute([instance.as_str(), platform.as_str(), user])?;
            return Ok(());
        };
        self.require_instance(instance)?;
        self.sql(
            "INSERT INTO principals (instance, platform, user_id, allowed) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (instance, platform, user_id) DO UPDATE SET allowed = excluded.allowed",
        )?
        .execute(params![instance.as_str(), platform.as_str(), user, allowed])?;
        Ok(())
    }

    /// Fails with a conflict if another instance holds the scope.
    pub fn grant_scope(&self, platform: Platform, scope: &str, instance: &InstanceId) -> Result<()> {
        self.require_instance(instance)?;
        self.sql(
            "INSERT INTO scopes (platform, scope_id, instance) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute([platform.as_str(), scope, instance.as_str()])?;
        match self.instance_of_scope(platform, scope)? {
            Some(owner) if owner == *instance => Ok(()),
            Some(_) | None => Err(Error::Conflict("the scope belongs to another instance")),
        }
    }

    /// Operator command: assigns the scope to this instance, taking it from its holder.
    pub fn assign_scope(&self, platform: Platform, scope: &str, instance: &InstanceId) -> Result<()> {
        self.require_instance(instance)?;
        if self.instance_of_scope(platform, scope)?.is_some_and(|holder| holder != *instance) {
            self.revoke_scope(platform, scope)?;
        }
        self.grant_scope(platform, scope, instance)
    }

    /// Operator command: revokes the scope. Its holder can neither write there nor claim it by earlier messages.
    /// `false`: the scope had no holder.
    pub fn revoke_scope(&self, platform: Platform, scope: &str) -> Result<bool> {
        let Some(holder) = self.instance_of_scope(platform, scope)? else { return Ok(false) };
        self.sql(
            "DELETE FROM chats WHERE instance = ?1 AND platform = ?2 AND (scope_id = ?3 OR chat_id = ?3)",
        )?
        .execute([holder.as_str(), platform.as_str(), scope])?;
        self.release_scope(platform, scope, &holder)
    }

    /// `false`: there was no binding.
    pub fn unbind_author(&self, platform: Platform, user: &str) -> Result<bool> {
        let mut unbind = self.sql("DELETE FROM authors WHERE platform = ?1 AND user_id = ?2")?;
        Ok(unbind.execute([platform.as_str(), user])? > 0)
    }

    /// `false`: this instance did not hold it.
    pub fn release_scope(&self, platform: Platform, scope: &str, instance: &InstanceId) -> Result<bool> {
        let mut release =
            self.sql("DELETE FROM scopes WHERE platform = ?1 AND scope_id = ?2 AND instance = ?3")?;
        Ok(release.execute([platform.as_str(), scope, instance.as_str()])? > 0)
    }

    /// Creates a code that binds its sender when sent in a direct message.
    pub fn add_link_code(&self, instance: &InstanceId, until: Millis) -> Result<String> {
        self.require_instance(instance)?;
        let code = random_hex::<8>()?;
        self.sql("INSERT INTO links (code_hash, instance, expires_at) VALUES (?1, ?2, ?3)")?
            .execute(params![hash(&code), instance.as_str(), at(until)])?;
        Ok(code)
    }

    /// Consumes the code and returns its instance.
    pub fn use_link_code(&self, code: &str, now: Millis) -> Result<Option<InstanceId>> {
        let mut take =
            self.sql("DELETE FROM links WHERE code_hash = ?1 AND expires_at > ?2 RETURNING instance")?;
        Ok(take.query_row(params![hash(code), at(now)], |row| row.get(0).map(InstanceId)).optional()?)
    }

    pub fn put_policy(&self, instance: &InstanceId, platform: Platform, policy: &ChatPolicy) -> Result<()> {
        self.sql(
            "INSERT INTO policies (instance, platform, require_address, free_scopes, other_bots)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (instance, platform) DO UPDATE SET
             require_address = excluded.require_address, free_scopes = excluded.free_scopes,
             other_bots = excluded.other_bots",
        )?
        .execute(params![
            instance.as_str(),
            platform.as_str(),
            policy.require_address,
            json(&policy.free_scopes)?,
            policy.other_bots
        ])?;
        Ok(())
    }

    fn require_instance(&self, instance: &InstanceId) -> Result<()> {
        self.instance(instance)?.map(drop).ok_or(Error::Missing("instance"))
    }
}
