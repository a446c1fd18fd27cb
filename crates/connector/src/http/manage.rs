//! Provisioning, policy and deprovisioning over HTTP. Tenant and instance come from the credentials, never from the
//! body.

use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use petasos_core::{GatewayId, InstanceId, Platform, TenantId};
use petasos_gateway::shell::Db;
use petasos_gateway::{Commit, Error, clock};
use petasos_platforms::listener::{error_response, json_response};
use petasos_relay::token;
use petasos_store::connector::{ChatPolicy, EnrollmentOutcome, GatewayCredentials};
use petasos_store::{Error as StoreError, Tx};
use serde_json::{Value, json};

use crate::http::bindings;
use crate::http::provisioning::ProvisioningLimiter;

const MAX_ID_LENGTH: usize = 128;
const MAX_URL_LENGTH: usize = 2048;
const MAX_SCOPES: usize = 256;

/// Handles of the management requests.
#[derive(Debug)]
pub(crate) struct Management {
    pub(crate) db: Db,
    pub(crate) single: Option<InstanceId>,
    /// Per tenant.
    pub(crate) max_gateways: u32,
    pub(crate) provisioning: ProvisioningLimiter,
}

pub(super) type Reply = Result<Response, Error>;

impl Management {
    /// Returns the gateway of a tenant's token, created on first use.
    pub(super) async fn provision(&self, authorization: Option<&str>, body: &Value) -> Reply {
        let Some(token) = authorization.and_then(token::bearer).map(str::to_owned) else {
            return Ok(error_response(StatusCode::UNAUTHORIZED, "unauthorized"));
        };
        let Some(tenant) = self.db.read(move |reader| reader.identity(&token)).await? else {
            return Ok(error_response(StatusCode::UNAUTHORIZED, "unauthorized"));
        };
        if let Err(wait) = self.provisioning.try_acquire(&tenant, clock::now()) {
            return Ok(too_many_requests(wait));
        }
        let Some(requested) = GatewayRequest::parse(body) else { return Ok(malformed("gatewayId")) };
        let platform = platform(body);
        let scopes = list(body, "routeKeys");
        let single = self.single.clone();
        let max = self.max_gateways;
        let answer = self.write(move |tx| {
            let gateway = requested.ensure(tx, &tenant, max)?;
            let mut granted = vec![];
            for scope in scopes {
                let Some(platform) = platform else { continue };
                match bindings::claim_scope(tx, single.as_ref(), platform, &scope, &gateway.instance) {
                    Ok(true) => granted.push(scope),
                    // Refused scopes are missing from the answer.
                    Ok(false) | Err(StoreError::Conflict(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut answer = credentials(&gateway);
            answer["routeKeys"] = json!(granted);
            answer["secretIssued"] = json!(true);
            Ok(answer)
        });
        Ok(json_response(StatusCode::OK, &answer.await?))
    }

    /// Redeems a one-time token in the commit that creates the gateway. An error rolls the redemption back.
    pub(super) async fn enroll(&self, authorization: Option<&str>, body: &Value) -> Reply {
        let (Some(requested), Some(code)) = (GatewayRequest::parse(body), field(body, "enrollmentToken"))
        else {
            return Ok(malformed("enrollmentToken and gatewayId"));
        };
        let authorization = authorization.and_then(token::bearer).map(str::to_owned);
        let now = clock::now();
        let max = self.max_gateways;
        let answer = self.write(move |tx| {
            // An unknown token has no effect on the result.
            let known = match &authorization {
                Some(authorization) => tx.identity(authorization)?,
                None => None,
            };
            match tx.redeem(&code, &requested.gateway, now)? {
                EnrollmentOutcome::Accepted { tenant }
                    if known.as_ref().is_none_or(|known| *known == tenant) =>
                {
                    // A known secret is not issued again.
                    if tx.gateways()?.iter().any(|row| row.id == requested.gateway) {
                        return Err(StoreError::Conflict("this gatewayId is taken; choose another"));
                    }
                    Ok(Some(credentials(&requested.ensure(tx, &tenant, max)?)))
                }
                EnrollmentOutcome::Accepted { .. } => Err(StoreError::Missing("enrollment")),
                EnrollmentOutcome::Refused => Ok(None),
            }
        });
        match answer.await {
            Ok(Some(answer)) => Ok(json_response(StatusCode::OK, &answer)),
            Ok(None) | Err(Error::Store(StoreError::Missing("enrollment"))) => {
                Ok(error_response(StatusCode::FORBIDDEN, "the enrollment token is not valid"))
            }
            Err(error) => Err(error),
        }
    }

    /// Serves a request of an authenticated gateway.
    pub(super) async fn manage(&self, gateway: &GatewayCredentials, path: &str, body: &Value) -> Reply {
        match path {
            "/relay/policy" => self.put_policy(gateway, body).await,
            "/relay/wake" => self.put_wake_url(gateway, body).await,
            "/manage/link" => self.create_link_code(gateway).await,
            "/manage/scope" => self.add_scope(gateway, body).await,
            "/manage/scope/release" => self.release_scope(gateway, body).await,
            "/manage/principal" => self.set_principal(gateway, body).await,
            "/manage/dm-default" => self.route_direct_messages(gateway, body).await,
            "/manage/deprovision" => {
                let instance = gateway.instance.clone();
                let now = clock::now();
                // `access_watch` closes open sockets.
                self.write(move |tx| tx.deprovision(&instance, now)).await?;
                Ok(ok_response())
            }
            _unknown => Ok(error_response(StatusCode::NOT_FOUND, "not found")),
        }
    }

    /// Replaces the whole policy.
    async fn put_policy(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let Some(platform) = platform(body) else { return Ok(malformed("platform")) };
        let Some(policy) = policy(body) else { return Ok(malformed("requireAddress, freeResponseScopes")) };
        let instance = gateway.instance.clone();
        self.write(move |tx| tx.put_policy(&instance, platform, &policy)).await?;
        Ok(ok_response())
    }

    /// `null` removes the address.
    async fn put_wake_url(&self, gateway: &GatewayCredentials, body: &Value) -> Reply {
        let url = match body.get("wakeUrl") {
            Some(Value::Null) => None,
            given => match given.and_then(Value::as_str) {
                Some(url) if !url.is_empty() && url.len() <= MAX_URL_LENGTH => Some(url.to_owned()),
                Some(_) | None => return Ok(malformed("wakeUrl")),
            },
        };
        let instance = gateway.instance.clone();
        self.write(move |tx| tx.put_wake_url(&instance, url.as_deref())).await?;
        Ok(ok_response())
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Error> {
        self.db.write(Commit::Connector, job).await
    }
}

struct GatewayRequest {
    gateway: GatewayId,
    instance: InstanceId,
    wake_url: Option<String>,
}

impl GatewayRequest {
    fn parse(body: &Value) -> Option<Self> {
        let gateway = field(body, "gatewayId")?;
        let instance = field(body, "instanceId").unwrap_or_else(|| gateway.clone());
        let wake_url = body.get("wakeUrl").and_then(Value::as_str).map(str::to_owned);
        let wake_url = wake_url.filter(|url| !url.is_empty() && url.len() <= MAX_URL_LENGTH);
        Some(Self { gateway: GatewayId(gateway), instance: InstanceId(instance), wake_url })
    }

    /// Returns the tenant's gateway of this name, created if absent. `max`: gateways, and instances, per tenant.
    fn ensure(&self, tx: &Tx<'_>, tenant: &TenantId, max: u32) -> Result<GatewayCredentials, StoreError> {
        let now = clock::now();
        let gateway = match tx.gateways()?.into_iter().find(|row| row.id == self.gateway) {
            Some(row) if row.tenant == *tenant && !row.revoked => {
                tx.gateway(&self.gateway, now)?.ok_or(StoreError::Missing("gateway"))?
            }
            Some(_) => return Err(StoreError::Conflict("this gatewayId is taken; choose another")),
            None => {
                let instance = &self.instance;
                if tx.is_contested(instance)? {
                    return Err(StoreError::Conflict(
                        "the owner of the connector adds the first gateway of this agent",
                    ));
                }
                let owned = tx.holdings(tenant)?;
                if owned.gateways >= max || (owned.instances >= max && tx.instance(instance)?.is_none()) {
                    return Err(StoreError::Conflict("this tenant has reached its limit of gateways"));
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

fn too_many_requests(wait: Duration) -> Response {
    let mut response =
        error_response(StatusCode::TOO_MANY_REQUESTS, "too many requests of this tenant; try again later");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    response
}

fn credentials(gateway: &GatewayCredentials) -> Value {
    json!({
        "secret": gateway.secrets.first(),
        "deliveryKey": gateway.delivery_key,
        "tenant": gateway.tenant,
        "gatewayId": gateway.id,
    })
}

fn policy(body: &Value) -> Option<ChatPolicy> {
    Some(ChatPolicy {
        require_address: body.get("requireAddress")?.as_bool()?,
        free_scopes: list(body, "freeResponseScopes"),
        other_bots: body.get("allowOtherBots").and_then(Value::as_bool).unwrap_or_default(),
    })
}

pub(super) fn platform(body: &Value) -> Option<Platform> {
    field(body, "platform").and_then(|name| Platform::parse(&name))
}

pub(super) fn ok_response() -> Response {
    json_response(StatusCode::OK, &json!({ "ok": true }))
}

pub(super) fn field(body: &Value, name: &str) -> Option<String> {
    let text = body.get(name)?.as_str()?;
    ((1..=MAX_ID_LENGTH).contains(&text.len())).then(|| text.to_owned())
}

fn list(body: &Value, name: &str) -> Vec<String> {
    let items = body.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().filter_map(Value::as_str).filter(|text| text.len() <= MAX_ID_LENGTH);
    texts.take(MAX_SCOPES).map(str::to_owned).collect()
}

pub(super) fn malformed(field: &str) -> Response {
    error_response(StatusCode::BAD_REQUEST, &format!("missing or invalid: {field}"))
}
