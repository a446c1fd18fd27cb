//! `petasos connector …`: who its gateways are, and what waits for them. Everything but `run` works on the database,
//! whether or not a connector runs; one that does notices.

pub(crate) mod run;

use std::process::ExitCode;
use std::time::Duration;

use petasos_cli::arguments::{ConnectorAction, GatewayAction, TenantAction};
use petasos_cli::commands::Context;
use petasos_cli::commands::links::rate_limit;
use petasos_cli::failure::{Failure, WRITABLE};
use petasos_cli::lock;
use petasos_cli::print::{self, ODD, now, say, styled};
use petasos_connector::Status;
use petasos_core::Platform;
use petasos_platforms::AdapterKind;
use petasos_store::connector::Gateway;
use petasos_store::{Error as StoreError, Reader, Store, Tx};
use serde_json::{Value, json};

/// How long a secret stays good after the next one was made.
const OVERLAP: Duration = Duration::from_secs(24 * 3600);
/// How long a code that binds somebody is good for.
const CODE: Duration = Duration::from_secs(600);
/// Put-aside events that are shown.
const SHOWN: usize = 20;

pub(crate) fn connector(context: &Context, action: ConnectorAction) -> Result<ExitCode, Failure> {
    let answer = match action {
        // Elsewhere: it is the only one that takes its time.
        ConnectorAction::Run { .. } => Value::Null,
        ConnectorAction::Tenant(action) => tenant(context, action)?,
        ConnectorAction::Gateway(action) => gateway(context, action)?,
        ConnectorAction::EnrollToken { tenant, within } => {
            let until = now().after(Duration::from_secs(within));
            let token =
                write(context, |tx| known(tx, &tenant).and_then(|()| tx.add_enrollment(&tenant, until)))?;
            json!({ "enrollmentToken": token, "tenant": tenant })
        }
        ConnectorAction::IdentityToken { tenant } => {
            let token =
                write(context, |tx| known(tx, &tenant).and_then(|()| tx.add_identity(&tenant, now())))?;
            json!({ "identityToken": token, "tenant": tenant })
        }
        ConnectorAction::Bind { platform, id, instance, scope } => {
            let platform = named(&platform)?;
            write(context, |tx| match scope {
                true => tx.assign_scope(platform, &id, &instance),
                false => tx.bind_author(platform, &id, &instance),
            })?;
            json!({ "platform": platform, "id": id, "instance": instance })
        }
        ConnectorAction::Unbind { platform, id, scope } => {
            let platform = named(&platform)?;
            let unbound = write(context, |tx| match scope {
                true => tx.revoke_scope(platform, &id),
                false => tx.unbind_author(platform, &id),
            })?;
            json!({ "platform": platform, "id": id, "unbound": unbound })
        }
        ConnectorAction::Link { instance } => {
            let code = write(context, |tx| tx.add_link_code(&instance, now().after(CODE)))?;
            json!({ "code": code, "expiresIn": CODE.as_secs() })
        }
        ConnectorAction::Status => return status(context),
    };
    tell(context, &answer)
}

fn tenant(context: &Context, action: TenantAction) -> Result<Value, Failure> {
    match action {
        TenantAction::Add { id } => {
            let added = write(context, |tx| tx.add_tenant(&id, now()))?;
            Ok(json!({ "tenant": id, "added": added }))
        }
        TenantAction::List => {
            Ok(json!({ "tenants": read(context, |reader| reader.tenants())?.unwrap_or_default() }))
        }
    }
}

fn gateway(context: &Context, action: GatewayAction) -> Result<Value, Failure> {
    match action {
        GatewayAction::Add { id, tenant, instance, wake_url } => {
            let added = write(context, |tx| {
                tx.ensure_instance(&instance, &tenant, now())?;
                if wake_url.is_some() {
                    tx.put_wake_url(&instance, wake_url.as_deref())?;
                }
                tx.add_gateway(&id, &instance, now())
            })?;
            Ok(credentials(&added))
        }
        GatewayAction::List => {
            let rows = read(context, |reader| reader.gateways())?.unwrap_or_default();
            let rows = rows.into_iter().map(|row| {
                json!({ "gatewayId": row.id, "instance": row.instance, "tenant": row.tenant, "revoked": row.revoked })
            });
            Ok(json!({ "gateways": rows.collect::<Vec<_>>() }))
        }
        GatewayAction::Rotate { id } => {
            let rotated = write(context, |tx| tx.rotate_gateway(&id, now().after(OVERLAP), now()))?;
            Ok(credentials(&rotated))
        }
        GatewayAction::Revoke { id } => {
            write(context, |tx| tx.revoke_gateway(&id, now()))?;
            Ok(json!({ "gatewayId": id, "revoked": true }))
        }
    }
}

fn credentials(gateway: &Gateway) -> Value {
    json!({
        "gatewayId": gateway.id,
        "secret": gateway.secrets.first(),
        "deliveryKey": gateway.delivery_key,
        "instance": gateway.instance,
        "tenant": gateway.tenant,
    })
}

fn status(context: &Context) -> Result<ExitCode, Failure> {
    let found =
        read(context, |reader| Ok((reader.depths()?, reader.dead_letters(SHOWN)?, reader.penalties()?)))?;
    let (depths, dead, mut limits) = found.unwrap_or_default();
    limits.retain(|penalty| penalty.until > now());
    let running = lock::is_held(&context.home.connector_lock());
    let live = Status::read(context.home.path()).filter(|_| running).map(|status| status.0);
    let mode = |id: &str| {
        let of = live.as_ref()?.get("instances")?.as_array()?.iter().find(|it| it["id"] == *id)?;
        of["mode"].as_str().map(str::to_owned)
    };
    let instances = depths.iter().map(|depth| {
        let otherwise = if depth.idle { "idle" } else { "gone" };
        json!({
            "id": depth.instance, "tenant": depth.tenant, "entries": depth.entries, "bytes": depth.bytes,
            "dead": depth.dead, "mode": mode(&depth.instance).unwrap_or_else(|| otherwise.to_owned()),
        })
    });
    let letters = dead.iter().map(|letter| {
        json!({
            "id": letter.id, "instance": letter.instance, "platform": letter.platform, "why": letter.why,
            "at": letter.at,
        })
    });
    let answer = json!({
        "running": running,
        "listen": live.as_ref().map(|live| live["listen"].clone()),
        "links": live.as_ref().map(|live| live["links"].clone()),
        "rate_limits": limits,
        "store_trouble": live.as_ref().map(|live| live["store_trouble"].clone()),
        "store_recoveries": live.as_ref().map(|live| live["store_recoveries"].clone()),
        "instances": instances.collect::<Vec<_>>(),
        "dead": letters.collect::<Vec<_>>(),
    });
    if context.json {
        return tell(context, &answer);
    }
    say!("{}", if running { "the connector runs" } else { "no connector runs on this home" });
    if let Some(trouble) = answer["store_trouble"].as_str() {
        say!("database: {trouble}");
    }
    for penalty in &limits {
        say!("{}", styled(ODD, &rate_limit(penalty, now())));
    }
    let rows: Vec<_> = answer["instances"].as_array().into_iter().flatten().map(row).collect();
    print::table(&["INSTANCE", "TENANT", "MODE", "WAITING", "PUT ASIDE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn row(instance: &Value) -> Vec<String> {
    let text = |name: &str| instance[name].as_str().map_or_else(|| instance[name].to_string(), str::to_owned);
    ["id", "tenant", "mode", "entries", "dead"].map(text).to_vec()
}

fn tell(context: &Context, answer: &Value) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value) in answer.as_object().into_iter().flatten() {
        match value {
            Value::Array(items) => items.iter().for_each(|item| say!("{}", plain(item))),
            value => say!("{name}: {}", plain(value)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

fn known(tx: &Tx<'_>, tenant: &str) -> petasos_store::Result<()> {
    let known = tx.tenants()?.iter().any(|known| known == tenant);
    if known { Ok(()) } else { Err(StoreError::Missing("tenant")) }
}

fn named(platform: &str) -> Result<Platform, Failure> {
    let names: Vec<_> = AdapterKind::fronted().collect();
    let unknown = || Failure::new(format!("{platform} is no platform")).next(one_of(&names));
    Platform::parse(platform).ok_or_else(unknown)
}

/// Between the commits of a connector that runs.
fn write<T>(context: &Context, job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>) -> Result<T, Failure> {
    let home = &context.home;
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE)
    })?;
    let mut store = Store::open_connector(home.path().join(petasos_connector::DATABASE))?;
    let done = store.write(job)?;
    store.close()?;
    Ok(done)
}

/// `None`: there is no database yet.
fn read<T>(
    context: &Context,
    question: impl FnOnce(&Reader) -> petasos_store::Result<T>,
) -> Result<Option<T>, Failure> {
    let path = context.home.path().join(petasos_connector::DATABASE);
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(Reader::open_connector(path)?.ask(question)?))
}
