//! Lost rows of a connector's database: what the loss means, and how the start limits it.
//!
//! | lost rows | the start |
//! |---|---|
//! | `queue` | lists them: these messages were acknowledged to the platform |
//! | `seen` | passes repeated events on: gateways recognise them |
//! | `requests` | stores the time before which requests are unknown, so that gateways mark what they repeat |
//! | `tenants`, `instances` | restores the rows to which others refer |
//! | `principals` | denies people without a rule until the operator accepts the loss |
//! | others | lists them: access becomes narrower, or platforms are read from the present |

use std::path::Path;

use petasos_core::{InstanceId, Millis, TenantId};
use rusqlite::{OptionalExtension, Transaction, params};

use crate::connection::{Reads, Tx};
use crate::connector::UNCLAIMED_TENANT;
use crate::error::{Error, Result};
use crate::salvage::notice::{change, put_meta_row};
use crate::salvage::{LAST, Salvage};
use crate::value::at;

/// Time (milliseconds) before which requests of gateways may lack their row.
const REQUESTS_UNKNOWN_BEFORE: &str = "requests_unknown_before";
/// Present while rules that deny people may be missing.
const DENIALS_LOST: &str = "denials_lost";
/// Present in a copy that a backup made, until a connector starts on it.
pub(crate) const BACKUP_COPY: &str = "backup_copy";
/// Prefix of the tenant of an instance whose own one is unknown. Each instance gets its own, so that none gains rights.
const RECOVERED_TENANT: &str = "recovered:";
/// Instances named in one text.
const MAX_NAMES: usize = 20;

/// Tables, and what the loss of their rows means.
const CONSEQUENCES: [(&[&str], &str); 6] = [
    (&["queue"], "messages that waited for an agent may be lost; their authors must send them again"),
    (
        &["cursors"],
        "Discord and Slack are read from now on: messages sent there while the connector was down may be missing",
    ),
    (
        &["requests"],
        "an answer from before the damage that a gateway sends again is marked as a possible duplicate, and agents \
         can neither edit nor delete messages from before it",
    ),
    (
        &["gateways", "enrollments", "identities"],
        "gateways and tokens may be missing: compare petasos connector gateway list, and add them again",
    ),
    (
        &["authors", "scopes", "links", "chats", "policies"],
        "bindings of people and groups may be missing: petasos connector bind adds them again",
    ),
    (
        &["principals"],
        "rules that deny people may be missing: in groups, only people with a rule or a binding are admitted until \
         you run petasos connector repair --accept-lost-denials",
    ),
];
const LOG_DAMAGED: &str = "the last changes may be undone: repeat what you revoked, unbound or denied last";

/// Tables whose rows refer to an instance.
const REFERRING: [&str; 9] =
    ["gateways", "queue", "authors", "principals", "scopes", "links", "policies", "chats", "vault"];

/// Writes the record into the new database before it is installed, and completes the report.
pub(super) fn record_salvage(path: &Path, salvage: &mut Salvage) -> Result<()> {
    change(path, |tx| {
        let texts = CONSEQUENCES.iter().filter(|(tables, _)| salvage.lists(tables));
        salvage.consequences = texts.map(|(_, text)| (*text).to_owned()).collect();
        if salvage.log_commits > 0 {
            salvage.consequences.push(LOG_DAMAGED.into());
        }
        salvage.consequences.extend(restore_parents(tx, salvage)?);
        // The time itself is a row of `meta`.
        if salvage.may_lack(&["requests", "meta"]) {
            put_meta_row(tx, REQUESTS_UNKNOWN_BEFORE, &at(salvage.at).to_string())?;
        }
        if salvage.lists(&["principals"]) {
            put_meta_row(tx, DENIALS_LOST, "yes")?;
        }
        put_meta_row(tx, LAST, &crate::value::json(&salvage.shortened())?)
    })
}

/// Restores tenants and instances to which other rows refer; without them nothing can be stored for these instances.
/// Returns what the operator must do.
fn restore_parents(tx: &Transaction<'_>, salvage: &Salvage) -> Result<Option<String>> {
    let now = at(salvage.at);
    tx.execute(
        "INSERT OR IGNORE INTO tenants (id, created_at)
         SELECT tenant, ?1 FROM instances UNION SELECT tenant, ?1 FROM enrollments UNION SELECT tenant, ?1 FROM identities",
        [now],
    )?;
    let missing = instances_without_row(tx)?;
    if missing.is_empty() {
        return Ok(None);
    }
    let tenant = if salvage.may_lack(&["tenants"]) { None } else { only_tenant(tx)? };
    for instance in &missing {
        let tenant = tenant.clone().unwrap_or_else(|| format!("{RECOVERED_TENANT}{instance}"));
        tx.execute("INSERT OR IGNORE INTO tenants (id, created_at) VALUES (?1, ?2)", params![tenant, now])?;
        let add = "INSERT INTO instances (id, tenant, created_at) VALUES (?1, ?2, ?3)";
        tx.execute(add, params![instance, tenant, now])?;
    }
    let shown: Vec<_> = missing.iter().take(MAX_NAMES).map(String::as_str).collect();
    let more = missing.len() - shown.len();
    let names = if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") };
    Ok(tenant.is_none().then(|| {
        format!("these agents lost their tenant: {names}; petasos connector tenant assign TENANT AGENT restores it")
    }))
}

fn instances_without_row(tx: &Transaction<'_>) -> Result<Vec<String>> {
    let referring = REFERRING.map(|table| format!("SELECT instance FROM {table}")).join(" UNION ");
    let text = format!(
        "SELECT id FROM (SELECT direct AS id FROM authors WHERE direct IS NOT NULL UNION {referring})
         WHERE id NOT IN (SELECT id FROM instances) ORDER BY id"
    );
    let mut read = tx.prepare(&text)?;
    Ok(read.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

/// The tenant, if there is only one beside that of unclaimed instances.
fn only_tenant(tx: &Transaction<'_>) -> Result<Option<String>> {
    let read = "SELECT max(id) FROM tenants
                WHERE id <> ?1 OR (SELECT count(*) FROM tenants) = 1 HAVING count(*) = 1";
    Ok(tx.query_row(read, [UNCLAIMED_TENANT], |row| row.get(0)).optional()?)
}

impl Reads {
    /// Time before which requests may have been performed without a row; a repeated one is not recognised.
    pub fn requests_unknown_before(&self) -> Result<Option<Millis>> {
        Ok(self.meta(REQUESTS_UNKNOWN_BEFORE)?.and_then(|text| text.parse().ok()).map(Millis))
    }

    /// Whether rules that deny people may be missing, and the operator has not accepted that.
    pub fn are_denials_lost(&self) -> Result<bool> {
        Ok(self.meta(DENIALS_LOST)?.is_some())
    }
}

impl Tx<'_> {
    /// `false`: no loss was recorded.
    pub fn accept_lost_denials(&self) -> Result<bool> {
        Ok(self.sql("DELETE FROM meta WHERE key = ?1")?.execute([DENIALS_LOST])? > 0)
    }

    /// Call at every start: requests made after a backup are unknown to its copy. `true`: this is such a copy.
    pub fn note_restored_copy(&self, now: Millis) -> Result<bool> {
        if self.sql("DELETE FROM meta WHERE key = ?1")?.execute([BACKUP_COPY])? == 0 {
            return Ok(false);
        }
        self.put_meta(REQUESTS_UNKNOWN_BEFORE, &at(now).to_string())?;
        Ok(true)
    }

    /// Returns an instance to its tenant after a salvage that lost it.
    pub fn assign_recovered_instance(
        &self,
        tenant: &TenantId,
        instance: &InstanceId,
        now: Millis,
    ) -> Result<()> {
        self.add_tenant(tenant, now)?;
        let mut assign =
            self.sql("UPDATE instances SET tenant = ?1 WHERE id = ?2 AND tenant = ?3 || ?2 RETURNING id")?;
        if !assign.exists([tenant.as_str(), instance.as_str(), RECOVERED_TENANT])? {
            return Err(Error::Conflict("the instance did not lose its tenant"));
        }
        self.sql("DELETE FROM tenants WHERE id = ?1 || ?2")?
            .execute([RECOVERED_TENANT, instance.as_str()])?;
        Ok(())
    }
}
