//! Who speaks to an instance, as its gateway asks for it: codes that bind, scopes, people by name, direct messages.
//!
//! A gateway can take nothing by this that is another tenant's, and no place in which nobody of its own is.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use petasos_core::Platform;
use petasos_gateway::Commit;
use petasos_gateway::{Error, clock};
use petasos_platforms::listener::{json as told, refused};
use petasos_store::connector::Gateway;
use petasos_store::{Error as StoreError, Tx};
use serde_json::{Value, json};

use crate::manage::{done, field, malformed, platform};
use crate::shell::Shell;

/// How long a code that binds an author is good for.
const CODE: Duration = Duration::from_secs(600);

/// A code: whoever sends it to the bot in a direct message speaks to this instance.
pub(crate) async fn link(shell: &Shell, gateway: &Gateway) -> Result<Response, Error> {
    let (instance, until) = (gateway.instance.clone(), clock::now().after(CODE));
    let code = shell.db.write(Commit::Connector, move |tx| tx.add_link_code(&instance, until)).await?;
    Ok(told(StatusCode::OK, &json!({ "code": code, "expiresIn": CODE.as_secs() })))
}

/// Everybody in a guild, a workspace or a group. Where nobody of theirs was heard, nobody of theirs may listen.
pub(crate) async fn take_scope(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let (Some(platform), Some(scope)) = (platform(body), field(body, "scopeId")) else {
        return Ok(malformed("platform and scopeId"));
    };
    let (instance, single) = (gateway.instance.clone(), shell.single.clone());
    let granted = shell
        .db
        .write(Commit::Connector, move |tx| claim_scope(tx, single.as_deref(), platform, &scope, &instance));
    Ok(match granted.await? {
        true => done(),
        false => refused(StatusCode::FORBIDDEN, "nobody who is bound to this instance was heard there"),
    })
}

/// The one way in which a gateway gets a scope, whichever route it asks on. `false`: it has no right to it.
pub(crate) fn claim_scope(
    tx: &Tx<'_>,
    single: Option<&str>,
    platform: Platform,
    scope: &str,
    instance: &str,
) -> Result<bool, StoreError> {
    let may = single == Some(instance) || tx.met_in_scope(instance, platform, scope)?;
    if may { tx.grant_scope(platform, scope, instance).map(|()| true) } else { Ok(false) }
}

pub(crate) async fn release_scope(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let (Some(platform), Some(scope)) = (platform(body), field(body, "scopeId")) else {
        return Ok(malformed("platform and scopeId"));
    };
    let instance = gateway.instance.clone();
    let released =
        shell.db.write(Commit::Connector, move |tx| tx.release_scope(platform, &scope, &instance)).await?;
    Ok(told(StatusCode::OK, &json!({ "ok": true, "released": released })))
}

/// Whether somebody is heard in the scopes of this instance, whatever its policy says of all others.
pub(crate) async fn name(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let (Some(platform), Some(user)) = (platform(body), field(body, "userId")) else {
        return Ok(malformed("platform and userId"));
    };
    let allowed = match body.get("policy").and_then(Value::as_str) {
        Some("allow") => Some(true),
        Some("deny") => Some(false),
        Some("default") => None,
        Some(_) | None => return Ok(malformed("policy: allow, deny or default")),
    };
    let instance = gateway.instance.clone();
    shell
        .db
        .write(Commit::Connector, move |tx| tx.put_principal(&instance, platform, &user, allowed))
        .await?;
    Ok(done())
}

/// What somebody of this tenant says to the bot alone comes to this instance, whichever they speak to elsewhere.
pub(crate) async fn take_direct(shell: &Shell, gateway: &Gateway, body: &Value) -> Result<Response, Error> {
    let (Some(platform), Some(user)) = (platform(body), field(body, "userId")) else {
        return Ok(malformed("platform and userId"));
    };
    let instance = gateway.instance.clone();
    let taken =
        shell.db.write(Commit::Connector, move |tx| tx.take_direct(platform, &user, &instance)).await?;
    Ok(match taken {
        true => done(),
        false => refused(StatusCode::FORBIDDEN, "they are not bound to an instance of this tenant"),
    })
}
