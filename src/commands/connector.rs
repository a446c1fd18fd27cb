//! `petasos connector …`: tenants, gateways, bindings and queues. Everything but `run` works on the database,
//! with or without a running connector, which notices changes.

mod maintenance;
pub(crate) mod run;
mod status;

use std::process::ExitCode;
use std::time::Duration;

use petasos_cli::arguments::{ConnectorAction, GatewayAction, TenantAction};
use petasos_cli::commands::Context;
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::print::{self, now, outln};
use petasos_core::{Platform, TenantId};
use petasos_platforms::AdapterKind;
use petasos_store::connector::GatewayCredentials;
use petasos_store::{Error as StoreError, Reader, Store, Tx};
use serde_json::{Value, json};

/// The old secret stays valid this long after a rotation.
const SECRET_OVERLAP: Duration = Duration::from_secs(24 * 3600);
const LINK_CODE_LIFETIME: Duration = Duration::from_secs(600);

pub(crate) fn connector(context: &Context, action: ConnectorAction) -> Result<ExitCode, Failure> {
    let response = match action {
        ConnectorAction::Run { .. } => Value::Null,
        ConnectorAction::Tenant(action) => tenant(context, action)?,
        ConnectorAction::Gateway(action) => gateway(context, action)?,
        ConnectorAction::EnrollToken { tenant, within } => {
            let until = now().after(Duration::from_secs(within));
            let token = with_transaction(context, |tx| {
                require_tenant(tx, &tenant).and_then(|()| tx.add_enrollment(&tenant, until))
            })?;
            json!({ "enrollmentToken": token, "tenant": tenant })
        }
        ConnectorAction::IdentityToken { tenant } => {
            let token = with_transaction(context, |tx| {
                require_tenant(tx, &tenant).and_then(|()| tx.add_identity(&tenant, now()))
            })?;
            json!({ "identityToken": token, "tenant": tenant })
        }
        ConnectorAction::Bind { platform, id, instance, scope } => {
            let platform = parse_platform(&platform)?;
            with_transaction(context, |tx| {
                if scope {
                    tx.assign_scope(platform, &id, &instance)
                } else {
                    tx.bind_author(platform, &id, &instance)
                }
            })?;
            json!({ "platform": platform, "id": id, "instance": instance })
        }
        ConnectorAction::Unbind { platform, id, scope } => {
            let platform = parse_platform(&platform)?;
            let unbound = with_transaction(context, |tx| {
                if scope { tx.revoke_scope(platform, &id) } else { tx.unbind_author(platform, &id) }
            })?;
            json!({ "platform": platform, "id": id, "unbound": unbound })
        }
        ConnectorAction::Link { instance } => {
            let code =
                with_transaction(context, |tx| tx.add_link_code(&instance, now().after(LINK_CODE_LIFETIME)))?;
            json!({ "code": code, "expiresIn": LINK_CODE_LIFETIME.as_secs() })
        }
        ConnectorAction::Status => return status::status(context),
        ConnectorAction::Backup { out } => return maintenance::backup(context, &out),
        ConnectorAction::Repair { accept_lost_denials } if accept_lost_denials => {
            return maintenance::accept_lost_denials(context);
        }
        ConnectorAction::Repair { .. } => return maintenance::repair(context),
    };
    print_response(context, &response)
}

fn tenant(context: &Context, action: TenantAction) -> Result<Value, Failure> {
    match action {
        TenantAction::Add { id } => {
            let added = with_transaction(context, |tx| tx.add_tenant(&id, now()))?;
            Ok(json!({ "tenant": id, "added": added }))
        }
        TenantAction::List => {
            Ok(json!({ "tenants": query_database(context, |reader| reader.tenants())?.unwrap_or_default() }))
        }
        TenantAction::Assign { tenant, instance } => {
            with_transaction(context, |tx| tx.assign_recovered_instance(&tenant, &instance, now()))?;
            Ok(json!({ "tenant": tenant, "instance": instance }))
        }
    }
}

fn gateway(context: &Context, action: GatewayAction) -> Result<Value, Failure> {
    match action {
        GatewayAction::Add { id, tenant, instance, wake_url } => {
            let added = with_transaction(context, |tx| {
                tx.ensure_instance(&instance, &tenant, now())?;
                if wake_url.is_some() {
                    tx.put_wake_url(&instance, wake_url.as_deref())?;
                }
                tx.add_gateway(&id, &instance, now())
            })?;
            Ok(credentials(&added))
        }
        GatewayAction::List => {
            let rows = query_database(context, |reader| reader.gateways())?.unwrap_or_default();
            let rows = rows.into_iter().map(|row| {
                json!({ "gatewayId": row.id, "instance": row.instance, "tenant": row.tenant, "revoked": row.revoked })
            });
            Ok(json!({ "gateways": rows.collect::<Vec<_>>() }))
        }
        GatewayAction::Rotate { id } => {
            let rotated =
                with_transaction(context, |tx| tx.rotate_gateway(&id, now().after(SECRET_OVERLAP), now()))?;
            Ok(credentials(&rotated))
        }
        GatewayAction::Revoke { id } => {
            with_transaction(context, |tx| tx.revoke_gateway(&id, now()))?;
            Ok(json!({ "gatewayId": id, "revoked": true }))
        }
    }
}

fn credentials(gateway: &GatewayCredentials) -> Value {
    json!({
        "gatewayId": gateway.id,
        "secret": gateway.secrets.first(),
        "deliveryKey": gateway.delivery_key,
        "instance": gateway.instance,
        "tenant": gateway.tenant,
    })
}

fn print_response(context: &Context, response: &Value) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(response)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in response.as_object().into_iter().flatten() {
        match value {
            Value::Array(items) if items.is_empty() => outln!("No {name} yet"),
            Value::Array(items) => items.iter().for_each(|item| outln!("{}", plain_text(item))),
            value => outln!("{name}: {}", plain_text(value)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

fn require_tenant(tx: &Tx<'_>, tenant: &TenantId) -> petasos_store::Result<()> {
    let exists = tx.tenants()?.iter().any(|known| known == tenant);
    if exists { Ok(()) } else { Err(StoreError::Missing("tenant")) }
}

fn parse_platform(platform: &str) -> Result<Platform, Failure> {
    let names: Vec<_> = AdapterKind::fronted().collect();
    let unknown = || {
        Failure::new(format!("{platform} is not a platform of a connector"))
            .next(format!("use {}", one_of(&names)))
    };
    Platform::parse(platform).ok_or_else(unknown)
}

/// Writes between the commits of a running connector.
fn with_transaction<T>(
    context: &Context,
    update: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>,
) -> Result<T, Failure> {
    let home = &context.home;
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE_ADVICE)
    })?;
    let mut store = Store::open_connector(home.path().join(petasos_connector::DATABASE))?;
    let result = store.write(update).map_err(describe_error)?;
    store.close()?;
    Ok(result)
}

/// A wrong name is not a problem of the database.
fn describe_error(error: StoreError) -> Failure {
    match error {
        StoreError::Missing(kind) => {
            let list = match kind {
                "tenant" => {
                    "petasos connector tenant list shows the tenants; petasos connector tenant add adds one"
                }
                "gateway" => "petasos connector gateway list shows the gateways",
                _ => "petasos connector status shows the instances; petasos connector gateway add adds one",
            };
            Failure::new(format!("there is no such {kind}")).next(list)
        }
        StoreError::Conflict(reason) => Failure::new(reason)
            .next("petasos connector gateway list shows gateways with their instances and tenants"),
        error => Failure::from(error),
    }
}

/// `None` if there is no database yet.
fn query_database<T>(
    context: &Context,
    query: impl FnOnce(&Reader) -> petasos_store::Result<T>,
) -> Result<Option<T>, Failure> {
    let path = context.home.path().join(petasos_connector::DATABASE);
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(Reader::open_connector(path)?.snapshot(query)?))
}
