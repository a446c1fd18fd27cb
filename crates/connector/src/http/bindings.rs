//! Bindings that a gateway requests: link codes, scopes, principals, direct messages. A gateway cannot take over what
//! belongs to another tenant, nor claim a scope in which none of its authors has written.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use petasos_core::{InstanceId, Platform};
use petasos_gateway::clock;
use petasos_platforms::listener::{error_response, json_response};
use petasos_store::connector::GatewayCredentials;
use petasos_store::{Error as StoreError, Tx};
use serde_json::{Value, json};

use super::manage::{Management, Reply, field, malformed, ok_response, platform};

const CODE_VALIDITY: Duration = Duration::from_secs(600);

impl Management {
    /// Creates a code; the author who sends it to the bot in a direct message is bound to this instance.
    pub(super) async fn create_link_code(&self, gateway: &GatewayCredentials) -> Reply {
        let instance = gateway.instance.clone();
        let until = clock::now().after(CODE_VALIDITY);
        let code = self.write(move |tx| tx.add_link_code(&instance, until)).await?;
        Ok(json_response(StatusCode::OK, &json!({ "code": code, "expiresIn": CODE_VALIDITY.as_secs() })))
    }

    /// Claims a guild, workspace or group, if an author of this tenant has written there.
    pub(super) async fn add_scope(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let Some((platform, scope)) = target(body, "scopeId") else {
            return Ok(malformed("platform and scopeId"));
        };
        let instance = gateway.instance.clone();
        let single = self.single.clone();
        let granted = self.write(move |tx| claim_scope(tx, single.as_ref(), platform, &scope, &instance));
        if !granted.await? {
            return Ok(forbidden("no author bound to this instance has written there"));
        }
        Ok(ok_response())
    }

    pub(super) async fn release_scope(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let Some((platform, scope)) = target(body, "scopeId") else {
            return Ok(malformed("platform and scopeId"));
        };
        let instance = gateway.instance.clone();
        let released = self.write(move |tx| tx.release_scope(platform, &scope, &instance)).await?;
        Ok(json_response(StatusCode::OK, &json!({ "ok": true, "released": released })))
    }

    /// Allows or blocks a principal in the scopes of this instance, regardless of its policy.
    pub(super) async fn set_principal(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let Some((platform, user)) = target(body, "userId") else {
            return Ok(malformed("platform and userId"));
        };
        let allowed = match body.get("policy").and_then(Value::as_str) {
            Some("allow") => Some(true),
            Some("deny") => Some(false),
            Some("default") => None,
            Some(_) | None => return Ok(malformed("policy: allow, deny or default")),
        };
        let instance = gateway.instance.clone();
        self.write(move |tx| tx.put_principal(&instance, platform, &user, allowed)).await?;
        Ok(ok_response())
    }

    /// Routes direct messages of this tenant's authors to this instance.
    pub(super) async fn route_direct_messages(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let Some((platform, user)) = target(body, "userId") else {
            return Ok(malformed("platform and userId"));
        };
        let instance = gateway.instance.clone();
        if !self.write(move |tx| tx.assign_direct_messages(platform, &user, &instance)).await? {
            return Ok(forbidden("the user is not bound to an instance of this tenant"));
        }
        Ok(ok_response())
    }
}

/// The only path to a scope. `false`: not allowed.
pub(super) fn claim_scope(
    tx: &Tx<'_>,
    single: Option<&InstanceId>,
    platform: Platform,
    scope: &str,
    instance: &InstanceId,
) -> Result<bool, StoreError> {
    let may = single == Some(instance) || tx.knows_scope(instance, platform, scope)?;
    if may { tx.grant_scope(platform, scope, instance).map(|()| true) } else { Ok(false) }
}

fn target(body: &Value, id: &str) -> Option<(Platform, String)> {
    Some((platform(body)?, field(body, id)?))
}

fn forbidden(reason: &str) -> Response {
    error_response(StatusCode::FORBIDDEN, reason)
}
