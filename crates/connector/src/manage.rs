//! What is asked over HTTP: to be let in, to be heard in certain ways, to be forgotten.
//!
//! Tenant and instance come from what the caller has shown, never from what the body says.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use petasos_core::Platform;
use petasos_gateway::Commit;
use petasos_gateway::{Error, clock};
use petasos_platforms::listener::{json as told, refused};
use petasos_relay::token;
use petasos_store::connector::{Gateway, Policy, Redeemed};
use petasos_store::{Error as StoreError, Tx};
use serde_json::{Value, json};

use crate::people;
use crate::shell::Shell;

const LONGEST_ID: usize = 128;
const LONGEST_URL: usize = 2048;
const MOST_SCOPES: usize = 256;

/// Whoever shows a tenant's token gets its gateway, made if need be; the same one every time.
pub(crate) async fn provision(
    shell: &Arc<Shell>,
    shown: Option<&str>,
    body: &Value,
) -> Result<Response, Error> {
    let Some(shown) = shown.and_then(token::bearer).map(str::to_owned) else {
        return Ok(refused(StatusCode::UNAUTHORIZED, "unauthorized"));
    };
    let Some(tenant) = shell.db.read(move |reader| reader.identity(&shown)).await? else {
        return Ok(refused(StatusCode::UNAUTHORIZED, "unauthorized"));
    };
    if let Err(wait) = shell.provisioning.take(&tenant, clock::now()) {
        return Ok(too_often(wait));
    }
    let Some(wanted) = Wanted::read(body) else { return Ok(malformed("gatewayId")) };
    let (platform, scopes) = (platform(body), list(body, "routeKeys"));
    let (single, most) = (shell.single.clone(), shell.max_gateways);
    let answer = shell.db.write(Commit::Connector, move |tx| {
        let gateway = wanted.have(tx, &tenant, most)?;
        let mut granted = vec![];
        for scope in scopes {
            let Some(platform) = platform else { continue };
            match people::claim_scope(tx, single.as_deref(), platform, &scope, &gateway.instance) {
                Ok(true) => granted.push(scope),
                // No right to it, or another agent has it: it is not among those in the answer.
                Ok(false) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut answer = credentials(&gateway);
        answer["routeKeys"] = json!(granted);
        answer["secretIssued"] = json!(true);
        Ok(answer)
    });
    Ok(told(StatusCode::OK, &answer.await?))
}

/// A one-time token is proof enough: it is used up in the commit that makes the gateway.
pub(crate) async fn enroll(shell: &Arc<Shell>, shown: Option<&str>, body: &Value) -> Result<Response, Error> {
    let (Some(wanted), Some(code)) = (Wanted::read(body), field(body, "enrollmentToken")) else {
        return Ok(malformed("enrollmentToken and gatewayId"));
    };
    let shown = shown.and_then(token::bearer).map(str::to_owned);
    let (now, most) = (clock::now(), shell.max_gateways);
    let answer = shell.db.write(Commit::Connector, move |tx| {
        // A token that is not one of ours says nothing about the caller, for or against.
        let known = match &shown {
            Some(shown) => tx.identity(shown)?,
            None => None,
        };
        match tx.redeem(&code, &wanted.gateway, now)? {
            Redeemed::For { tenant } if known.as_ref().is_none_or(|known| *known == tenant) => {
                // A secret that somebody has already is not told again; the error takes the redemption back.
                if tx.gateways()?.iter().any(|row| row.id == wanted.gateway) {
                    return Err(StoreError::Conflict("this gatewayId is taken; choose another"));
                }
                Ok(Some(credentials(&wanted.have(tx, &tenant, most)?)))
            }
            // The error takes the redemption back.
            Redeemed::For { .. } => Err(StoreError::Missing("enrollment")),
            Redeemed::Refused => Ok(None),
        }
    });
    match answer.await {
        Ok(Some(answer)) => Ok(told(StatusCode::OK, &answer)),
        Ok(None) | Err(Error::Store(StoreError::Missing("enrollment"))) => {
            Ok(refused(StatusCode::FORBIDDEN, "the enrollment token is not valid"))
        }
        Err(error) => Err(error),
    }
}

/// For a gateway that has shown who it is.
pub(crate) async fn manage(
    shell: &Arc<Shell>,
    gateway: &Gateway,
    path: &str,
    body: &Value,
) -> Result<Response, Error> {
    match path {
        "/relay/policy" => put_policy(shell, gateway, body).await,
        "/relay/wake" => put_wake_url(shell, gateway, body).await,
        "/manage/link" => people::link(shell, gateway).await,
        "/manage/scope" => people::take_scope(shell, gateway, body).await,
        "/manage/scope/release" => people::release_scope(shell, gateway, body).await,
        "/manage/principal" => people::name(shell, gateway, body).await,
        "/manage/dm-default" => people::take_direct(shell, gateway, body).await,
        "/manage/deprovision" => {
            let (instance, now) = (gateway.instance.clone(), clock::now());
            // Sockets that are open are closed by `watch`.
            shell.db.write(Commit::Connector, move |tx| tx.deprovision(&instance, now)).await?;
            Ok(done())
        }
        _unknown => Ok(refused(StatusCode::NOT_FOUND, "there is nothing here")),
    }
}

/// In place of what was said before.
async fn put_policy(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let Some(platform) = platform(body) else { return Ok(malformed("platform")) };
    let Some(policy) = policy(body) else { return Ok(malformed("requireAddress, freeResponseScopes")) };
    let instance = gateway.instance.clone();
    shell.db.write(Commit::Connector, move |tx| tx.put_policy(&instance, platform, &policy)).await?;
    Ok(done())
}

/// `null`: nobody is to be woken any more.
async fn put_wake_url(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let url = match body.get("wakeUrl") {
        Some(Value::Null) => None,
        given => match given.and_then(Value::as_str) {
            Some(url) if !url.is_empty() && url.len() <= LONGEST_URL => Some(url.to_owned()),
            Some(_) | None => return Ok(malformed("wakeUrl")),
        },
    };
    let instance = gateway.instance.clone();
    shell.db.write(Commit::Connector, move |tx| tx.put_wake_url(&instance, url.as_deref())).await?;
    Ok(done())
}

/// A gateway that somebody wants to have.
struct Wanted {
    gateway: String,
    instance: Option<String>,
    wake_url: Option<String>,
}

impl Wanted {
    fn read(body: &Value) -> Option<Self> {
        let gateway = field(body, "gatewayId")?;
        let wake_url = body.get("wakeUrl").and_then(Value::as_str).map(str::to_owned);
        let wake_url = wake_url.filter(|url| !url.is_empty() && url.len() <= LONGEST_URL);
        Some(Self { gateway, instance: field(body, "instanceId"), wake_url })
    }

    /// The record of this name, if it is the tenant's; a new one, if there is none.
    /// `most`: gateways, and agents, that the tenant may have.
    fn have(&self, tx: &Tx<'_>, tenant: &str, most: u32) -> Result<Gateway, StoreError> {
        let now = clock::now();
        let gateway = match tx.gateways()?.into_iter().find(|row| row.id == self.gateway) {
            Some(row) if row.tenant == tenant && !row.revoked => {
                tx.gateway(&self.gateway, now)?.ok_or(StoreError::Missing("gateway"))?
            }
            Some(_) => return Err(StoreError::Conflict("this gatewayId is taken; choose another")),
            None => {
                let instance = self.instance.as_ref().unwrap_or(&self.gateway);
                if tx.is_contested(instance)? {
                    return Err(StoreError::Conflict(
                        "the owner of the connector adds the first gateway of this agent",
                    ));
                }
                let had = tx.holdings(tenant)?;
                if had.gateways >= most || (had.instances >= most && tx.instance(instance)?.is_none()) {
                    return Err(StoreError::Conflict("this tenant has as many gateways as it may have"));
                }
                tx.ensure_instance(instance, tenant, now)?;
                tx.add_gateway(&self.gateway, instance, now)?
            }
        };
        if self.wake_url.is_some() {
            tx.put_wake_url(&gateway.instance, self.wake_url.as_deref())?;
        }
        Ok(gateway)
    }
}

fn too_often(wait: Duration) -> Response {
    let mut response =
        refused(StatusCode::TOO_MANY_REQUESTS, "too many requests of this tenant; try again later");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    response
}

fn credentials(gateway: &Gateway) -> Value {
    json!({
        "secret": gateway.secrets.first(),
        "deliveryKey": gateway.delivery_key,
        "tenant": gateway.tenant,
        "gatewayId": gateway.id,
    })
}

fn policy(body: &Value) -> Option<Policy> {
    Some(Policy {
        require_address: body.get("requireAddress")?.as_bool()?,
        free_scopes: list(body, "freeResponseScopes"),
        other_bots: body.get("allowOtherBots").and_then(Value::as_bool).unwrap_or_default(),
    })
}

pub(crate) fn platform(body: &Value) -> Option<Platform> {
    field(body, "platform").and_then(|name| Platform::parse(&name))
}

/// Nothing more is to be said.
pub(crate) fn done() -> Response {
    told(StatusCode::OK, &json!({ "ok": true }))
}

pub(crate) fn field(body: &Value, name: &str) -> Option<String> {
    let text = body.get(name)?.as_str()?;
    ((1..=LONGEST_ID).contains(&text.len())).then(|| text.to_owned())
}

fn list(body: &Value, name: &str) -> Vec<String> {
    let items = body.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().filter_map(Value::as_str).filter(|text| text.len() <= LONGEST_ID);
    texts.take(MOST_SCOPES).map(str::to_owned).collect()
}

pub(crate) fn malformed(what: &str) -> Response {
    refused(StatusCode::BAD_REQUEST, &format!("no usable {what}"))
}
