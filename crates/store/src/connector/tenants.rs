//! Tenants, their instances, and the credentials of gateways.

use petasos_core::{GatewayId, InstanceId, Millis, TenantId};
use rusqlite::{OptionalExtension, Row, params};

use crate::access::logins::random_hex;
use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::value::{at, time_at};

/// Identity and secrets of an authorised gateway, as stored. The gateway itself cannot change them.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayCredentials {
    pub id: GatewayId,
    pub instance: InstanceId,
    pub tenant: TenantId,
    pub secrets: Vec<String>,
    pub delivery_key: String,
}

/// Omits the secrets.
impl std::fmt::Debug for GatewayCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("id", &self.id)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// A gateway without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayRow {
    pub id: GatewayId,
    pub instance: InstanceId,
    pub tenant: TenantId,
    pub revoked: bool,
    pub created_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub tenant: TenantId,
    pub wake_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    pub instances: u32,
    pub gateways: u32,
}

/// Tenant of instances that are not claimed yet.
pub(crate) const UNCLAIMED_TENANT: &str = "default";

const SELECT_GATEWAY: &str = "SELECT g.id, g.instance, i.tenant, g.secret,
        CASE WHEN g.former_until > ?2 THEN g.former END, g.delivery_key
    FROM gateways g JOIN instances i ON i.id = g.instance";

impl Reads {
    pub fn tenants(&self) -> Result<Vec<TenantId>> {
        let mut read = self.sql("SELECT id FROM tenants ORDER BY id")?;
        read.query_and_then([], |row| Ok(TenantId(row.get(0)?)))?.collect()
    }

    /// A gateway that is not revoked.
    pub fn gateway(&self, id: &GatewayId, now: Millis) -> Result<Option<GatewayCredentials>> {
        let mut read = self.sql(&format!("{SELECT_GATEWAY} WHERE g.id = ?1 AND g.revoked_at IS NULL"))?;
        read.query_and_then(params![id.as_str(), at(now)], gateway)?.next().transpose()
    }

    pub fn gateways(&self) -> Result<Vec<GatewayRow>> {
        let mut read = self.sql(
            "SELECT g.id, g.instance, i.tenant, g.revoked_at IS NOT NULL, g.created_at
             FROM gateways g JOIN instances i ON i.id = g.instance ORDER BY g.id",
        )?;
        let rows = read.query_and_then([], |row| {
            let id = GatewayId(row.get(0)?);
            let instance = InstanceId(row.get(1)?);
            let tenant = TenantId(row.get(2)?);
            Ok(GatewayRow { id, instance, tenant, revoked: row.get(3)?, created_at: time_at(row, 4)? })
        })?;
        rows.collect()
    }

    /// Number of instances and gateways of a tenant, including revoked gateways that are still listed.
    pub fn holdings(&self, tenant: &TenantId) -> Result<Holdings> {
        let mut read = self.sql(
            "SELECT (SELECT count(*) FROM instances WHERE tenant = ?1),
                    (SELECT count(*) FROM gateways g JOIN instances i ON i.id = g.instance WHERE i.tenant = ?1)",
        )?;
        Ok(read.query_row([tenant.as_str()], |row| {
            Ok(Holdings { instances: row.get(0)?, gateways: row.get(1)? })
        })?)
    }

    /// Whether the instance is unclaimed while several tenants could claim it.
    pub fn is_contested(&self, instance: &InstanceId) -> Result<bool> {
        let mut read = self.sql(
            "SELECT 1 FROM instances WHERE id = ?1 AND tenant = ?2
             AND (SELECT count(*) FROM tenants WHERE id <> ?2) > 1",
        )?;
        Ok(read.exists([instance.as_str(), UNCLAIMED_TENANT])?)
    }

    pub fn instance(&self, id: &InstanceId) -> Result<Option<Instance>> {
        let mut read = self.sql("SELECT id, tenant, wake_url FROM instances WHERE id = ?1")?;
        let found = read.query_row([id.as_str()], |row| {
            let id = InstanceId(row.get(0)?);
            let tenant = TenantId(row.get(1)?);
            Ok(Instance { id, tenant, wake_url: row.get(2)? })
        });
        Ok(found.optional()?)
    }

    /// Increases with every change that open sockets must apply.
    pub fn revision(&self) -> Result<u64> {
        Ok(self.meta("revision")?.and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

impl Tx<'_> {
    /// `false`: it already exists.
    pub fn add_tenant(&self, id: &TenantId, now: Millis) -> Result<bool> {
        let mut add =
            self.sql("INSERT INTO tenants (id, created_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
        Ok(add.execute(params![id.as_str(), at(now)])? > 0)
    }

    /// Creates the instance of single-instance mode, unclaimed: the tenant is set when a gateway is added for it.
    pub fn ensure_single_instance(&self, id: &InstanceId, now: Millis) -> Result<()> {
        if self.instance(id)?.is_some() {
            return Ok(());
        }
        let unclaimed = TenantId::from(UNCLAIMED_TENANT);
        self.add_tenant(&unclaimed, now)?;
        self.ensure_instance(id, &unclaimed, now)
    }

    /// Creates the instance if absent. Fails with a conflict if it belongs to another tenant.
    pub fn ensure_instance(&self, id: &InstanceId, tenant: &TenantId, now: Millis) -> Result<()> {
        if !self.sql("SELECT 1 FROM tenants WHERE id = ?1")?.exists([tenant.as_str()])? {
            return Err(Error::Missing("tenant"));
        }
        self.sql(
            "INSERT INTO instances (id, tenant, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute(params![id.as_str(), tenant.as_str(), at(now)])?;
        // Claims an unclaimed instance.
        self.sql(
            "UPDATE instances SET tenant = ?2 WHERE id = ?1 AND tenant = ?3
             AND NOT EXISTS (SELECT 1 FROM gateways WHERE instance = ?1)",
        )?
        .execute([id.as_str(), tenant.as_str(), UNCLAIMED_TENANT])?;
        match self.instance(id)? {
            Some(found) if found.tenant == *tenant => Ok(()),
            Some(_) | None => Err(Error::Conflict("the instance belongs to another tenant")),
        }
    }

    pub fn put_wake_url(&self, instance: &InstanceId, url: Option<&str>) -> Result<()> {
        self.sql("UPDATE instances SET wake_url = ?2 WHERE id = ?1")?
            .execute(params![instance.as_str(), url])?;
        Ok(())
    }

    pub fn add_gateway(
        &self,
        id: &GatewayId,
        instance: &InstanceId,
        now: Millis,
    ) -> Result<GatewayCredentials> {
        let secret = random_hex::<32>()?;
        let key = random_hex::<32>()?;
        let added = self
            .sql(
                "INSERT INTO gateways (id, instance, secret, delivery_key, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            )?
            .execute(params![id.as_str(), instance.as_str(), secret, key, at(now)])?;
        if added == 0 {
            return Err(Error::Conflict("a gateway of this name already exists"));
        }
        self.gateway(id, now)?.ok_or(Error::Missing("gateway"))
    }

    /// Replaces the secret; the previous one stays valid until `until`.
    pub fn rotate_gateway(&self, id: &GatewayId, until: Millis, now: Millis) -> Result<GatewayCredentials> {
        let secret = random_hex::<32>()?;
        let done = self
            .sql(
                "UPDATE gateways SET former = secret, former_until = ?3, secret = ?2
                 WHERE id = ?1 AND revoked_at IS NULL",
            )?
            .execute(params![id.as_str(), secret, at(until)])?;
        if done == 0 {
            return Err(Error::Missing("gateway"));
        }
        self.gateway(id, now)?.ok_or(Error::Missing("gateway"))
    }

    /// Rejects the gateway from now on. Its name is not reused.
    pub fn revoke_gateway(&self, id: &GatewayId, now: Millis) -> Result<()> {
        let done = self
            .sql("UPDATE gateways SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1")?
            .execute(params![id.as_str(), at(now)])?;
        if done == 0 {
            return Err(Error::Missing("gateway"));
        }
        self.bump_revision()
    }

    /// Removes all routing to an instance. Its queue stays until it expires.
    pub fn deprovision(&self, instance: &InstanceId, now: Millis) -> Result<()> {
        self.sql("UPDATE gateways SET revoked_at = coalesce(revoked_at, ?2) WHERE instance = ?1")?
            .execute(params![instance.as_str(), at(now)])?;
        for table in ["authors", "principals", "scopes", "links", "policies", "chats", "vault"] {
            self.sql(&format!("DELETE FROM {table} WHERE instance = ?1"))?.execute([instance.as_str()])?;
        }
        self.sql("UPDATE authors SET direct = NULL WHERE direct = ?1")?.execute([instance.as_str()])?;
        // Local files are removed by the next sweep.
        self.sql("UPDATE media SET expires_at = min(expires_at, ?2) WHERE instance = ?1")?
            .execute(params![instance.as_str(), at(now)])?;
        self.bump_revision()
    }

    /// Deletes gateways revoked before `then`, and instances without any other record.
    pub fn drop_revoked_before(&self, then: Millis) -> Result<()> {
        self.sql("DELETE FROM gateways WHERE revoked_at <= ?1")?.execute([at(then)])?;
        self.sql(
            "DELETE FROM instances WHERE tenant <> ?1 AND created_at <= ?2
             AND NOT EXISTS (SELECT 1 FROM gateways WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM queue WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM authors WHERE instance = instances.id OR direct = instances.id)
             AND NOT EXISTS (SELECT 1 FROM principals WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM scopes WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM links WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM policies WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM chats WHERE instance = instances.id)
             AND NOT EXISTS (SELECT 1 FROM vault WHERE instance = instances.id)",
        )?
        .execute(params![UNCLAIMED_TENANT, at(then)])?;
        Ok(())
    }

    pub(super) fn bump_revision(&self) -> Result<()> {
        self.put_meta("revision", &(self.revision()? + 1).to_string())
    }
}

fn gateway(row: &Row<'_>) -> Result<GatewayCredentials> {
    let secret: String = row.get(3)?;
    let former: Option<String> = row.get(4)?;
    Ok(GatewayCredentials {
        id: GatewayId(row.get(0)?),
        instance: InstanceId(row.get(1)?),
        tenant: TenantId(row.get(2)?),
        secrets: std::iter::once(secret).chain(former).collect(),
        delivery_key: row.get(5)?,
    })
}
