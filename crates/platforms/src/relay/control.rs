//! The connector's HTTP API: provisioning, enrolment, wake address and policy. One attempt per request; redirects are
//! not followed, so that credentials stay with the connector.

use std::time::Duration;

use aws_lc_rs::hmac;
use futures_util::future::join_all;
use petasos_core::{GatewayId, InstanceId, Platform, Secret, TenantId};
use petasos_relay::{address, token as tokens};
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, RequestBuilder, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::Identity;
use super::wire::RelayConnection;
use crate::http::{self, HttpError};

const WITHIN: Duration = Duration::from_secs(15);
const AT_ONCE: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub gateway_id: GatewayId,
    pub secret: Secret,
}

#[derive(Debug, Clone)]
pub struct Provision {
    pub gateway_id: GatewayId,
    pub route_keys: Vec<String>,
    pub instance_id: Option<InstanceId>,
    pub wake_url: Option<String>,
    pub grant: Grant,
}

/// OAuth client credentials that identify the tenant.
#[derive(Debug, Clone)]
pub struct Grant {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub scope: Option<String>,
}

/// Filter for the events of one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub platform: Platform,
    pub require_address: bool,
    pub free_response_scopes: Vec<String>,
    pub allow_other_bots: bool,
}

#[derive(Debug, Clone)]
pub struct Enroll {
    pub url: String,
    pub token: Secret,
    pub gateway_id: GatewayId,
    pub wake_url: Option<String>,
    pub instance_id: Option<InstanceId>,
    pub grant: Option<Grant>,
}

#[derive(Debug, Clone)]
pub struct Enrolled {
    pub credentials: Credentials,
    pub delivery_key: Option<Secret>,
    pub tenant: Option<TenantId>,
}

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0:?} is not the URL of a connector; use an address such as https://connector.example.org")]
    Address(String),
    #[error("the identity provider answered {0}")]
    Identity(u16),
    #[error("the connector answered {status}{}", advice(*status))]
    Status { status: u16 },
    #[error("the connector's answer cannot be read; check that the URL belongs to a connector")]
    Garbage,
    #[error(transparent)]
    Link(#[from] HttpError),
    #[error("TLS setup: {0}")]
    Client(String),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; it does not accept the credentials of this gateway",
        403 => "; the enrollment token is wrong, already used or expired",
        409 => "; the name of this gateway belongs to another tenant, so choose another name",
        _ => "",
    }
}

#[derive(Deserialize)]
struct Issued {
    secret: Option<String>,
    #[serde(rename = "deliveryKey")]
    delivery_key: Option<String>,
    tenant: Option<TenantId>,
    #[serde(rename = "gatewayId")]
    gateway_id: Option<GatewayId>,
    #[serde(rename = "secretIssued")]
    secret_issued: Option<bool>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
}

pub(super) fn token(credentials: &Credentials) -> String {
    let now = petasos_runtime::clock::now().0 / 1000;
    tokens::mint(credentials.gateway_id.as_str(), credentials.secret.expose(), now + tokens::LIFETIME, sign)
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

pub(super) fn base(url: &str) -> Option<Url> {
    let parsed = Url::parse(&address::endpoint(url, "media")).ok()?;
    (matches!(parsed.scheme(), "http" | "https") && parsed.has_host()).then_some(parsed)
}

impl RelayConnection {
    /// Obtains credentials if needed, then sends wake address and policies concurrently. Failures do not prevent
    /// dialling.
    pub(super) async fn prepare(&self) {
        if let (None, Some(provision)) = (self.credentials(), &self.config.provision) {
            match self.provision(provision).await {
                Ok(Some(credentials)) => self.adopt_credentials(credentials),
                Ok(None) => {
                    warn!("the connector issued no secret; enroll the gateway or set GATEWAY_RELAY_SECRET")
                }
                Err(error) => warn!(%error, "cannot obtain relay credentials"),
            }
        }
        let Some(credentials) = self.credentials() else { return };
        let (called, ()) = tokio::join!(self.put_wake_url(&credentials), self.put_policies(&credentials));
        match called {
            Ok(()) => {}
            // Another implementation, which only accepts the address at provisioning.
            Err(Refused::Status { status: 400 | 404 | 405 }) => {
                info!("the connector does not accept a new wake address");
            }
            Err(error) => warn!(%error, "cannot set the wake address"),
        }
    }

    async fn put_policies(&self, credentials: &Credentials) {
        for some in self.config.policies.chunks(AT_ONCE) {
            let taken = join_all(some.iter().map(|policy| self.put_policy(credentials, policy))).await;
            for (policy, taken) in some.iter().zip(taken) {
                if let Err(error) = taken {
                    warn!(platform = %policy.platform, %error, "cannot set the policy");
                }
            }
        }
    }

    /// The address given at provisioning may be outdated or missing.
    async fn put_wake_url(&self, credentials: &Credentials) -> Result<(), Refused> {
        let Some(wake_url) = &self.config.wake_url else { return Ok(()) };
        self.put(credentials, "wake", &json!({ "wakeUrl": wake_url })).await
    }

    async fn put(&self, credentials: &Credentials, what: &str, body: &Value) -> Result<(), Refused> {
        let request = self.client.post(address::endpoint(&self.config.url, what)).json(body);
        let answer = http::send(authorized(request, &token(credentials)), WITHIN).await?;
        if answer.status == 200 { Ok(()) } else { Err(Refused::Status { status: answer.status }) }
    }

    /// One request per identity; the first credentials win. A failed platform does not stop the others.
    async fn provision(&self, provision: &Provision) -> Result<Option<Credentials>, Refused> {
        let bearer = granted(&self.client, &provision.grant).await?;
        let url = address::endpoint(&self.config.url, "provision");
        let generic = [Identity { platform: Platform::relay(), bot_id: String::new() }];
        let identities =
            if self.config.identities.is_empty() { &generic[..] } else { &self.config.identities };
        let mut found = None;
        let mut failed = None;
        for identity in identities {
            let request = self.client.post(&url).json(&provision_body(provision, identity));
            match issued(authorized(request, bearer.expose())).await {
                Ok(Issued { secret: Some(secret), gateway_id, .. }) => {
                    info!(platform = %identity.platform, "provisioned");
                    let gateway_id = gateway_id.unwrap_or_else(|| provision.gateway_id.clone());
                    found.get_or_insert(Credentials { gateway_id, secret: Secret::new(secret) });
                }
                Ok(Issued { secret_issued: Some(false), .. }) => {}
                Ok(Issued { .. }) => failed = Some(Refused::Garbage),
                Err(error) => {
                    warn!(platform = %identity.platform, %error, "provisioning failed");
                    failed = Some(error);
                }
            }
        }
        match (found, failed) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Sent even with defaults, because it replaces the earlier policy.
    async fn put_policy(&self, credentials: &Credentials, policy: &Policy) -> Result<(), Refused> {
        let body = json!({
            "platform": policy.platform.as_str(),
            "requireAddress": policy.require_address,
            "freeResponseScopes": policy.free_response_scopes,
            "allowOtherBots": policy.allow_other_bots,
        });
        self.put(credentials, "policy", &body).await
    }
}

fn provision_body(provision: &Provision, identity: &Identity) -> Value {
    let mut body = json!({
        "gatewayId": provision.gateway_id,
        "platform": identity.platform.as_str(),
        "botId": identity.bot_id,
        "gatewayEndpoint": "",
        "routeKeys": provision.route_keys,
    });
    put(&mut body, "instanceId", provision.instance_id.as_ref());
    put(&mut body, "wakeUrl", provision.wake_url.as_ref());
    body
}

fn put(body: &mut Value, name: &str, value: Option<&impl Serialize>) {
    if let Some(value) = value {
        body[name] = json!(value);
    }
}

/// Redeems a one-time token for credentials.
pub async fn enroll(enroll: &Enroll) -> Result<Enrolled, Refused> {
    let base = base(&enroll.url).ok_or_else(|| Refused::Address(enroll.url.clone()))?;
    let client = client(&base)?;
    let mut body = json!({ "enrollmentToken": enroll.token.expose(), "gatewayId": enroll.gateway_id });
    put(&mut body, "instanceId", enroll.instance_id.as_ref());
    put(&mut body, "wakeUrl", enroll.wake_url.as_ref());
    let mut request = client.post(address::endpoint(&enroll.url, "enroll")).json(&body);
    if let Some(grant) = &enroll.grant {
        request = authorized(request, granted(&client, grant).await?.expose());
    }
    let issued = issued(request).await?;
    let secret = issued.secret.filter(|secret| !secret.is_empty()).ok_or(Refused::Garbage)?;
    let gateway_id = issued.gateway_id.unwrap_or_else(|| enroll.gateway_id.clone());
    Ok(Enrolled {
        credentials: Credentials { gateway_id, secret: Secret::new(secret) },
        delivery_key: issued.delivery_key.map(Secret::new),
        tenant: issued.tenant,
    })
}

async fn issued(request: RequestBuilder) -> Result<Issued, Refused> {
    let answer = http::send(request, WITHIN).await?;
    if answer.status != 200 {
        return Err(Refused::Status { status: answer.status });
    }
    serde_json::from_slice(&answer.body).map_err(|_| Refused::Garbage)
}

async fn granted(client: &Client, grant: &Grant) -> Result<Secret, Refused> {
    let mut form = vec![
        ("grant_type", "client_credentials"),
        ("client_id", grant.client_id.as_str()),
        ("client_secret", grant.client_secret.expose()),
    ];
    form.extend(grant.scope.as_deref().map(|scope| ("scope", scope)));
    let url = Url::parse(&grant.token_url).map_err(|_| Refused::Address(grant.token_url.clone()))?;
    // The token endpoint is on another host, with certificates of its own.
    let client = if url.scheme() == "https" { self::client(&url)? } else { client.clone() };
    let body = encoded(&form);
    let request = client.post(url).header("Content-Type", "application/x-www-form-urlencoded").body(body);
    let answer = http::send(request, WITHIN).await?;
    if answer.status != 200 {
        return Err(Refused::Identity(answer.status));
    }
    let Granted { access_token } = serde_json::from_slice(&answer.body).map_err(|_| Refused::Garbage)?;
    Ok(Secret::new(access_token))
}

fn client(base: &Url) -> Result<Client, Refused> {
    http::client(base, None).map_err(|error| Refused::Client(error.without_url().to_string()))
}

fn encoded(form: &[(&str, &str)]) -> String {
    let mut url = Url::parse("form:").ok();
    if let Some(url) = &mut url {
        url.query_pairs_mut().extend_pairs(form);
    }
    url.and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
}

fn authorized(request: RequestBuilder, bearer: &str) -> RequestBuilder {
    request.header(AUTHORIZATION, format!("Bearer {bearer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_form_bodies() {
        assert_eq!(encoded(&[("a", "b c&d"), ("e", "ü")]), "a=b+c%26d&e=%C3%BC");
    }

    #[test]
    fn ignores_unknown_fields() {
        let grant = Grant {
            token_url: String::new(),
            client_id: String::new(),
            client_secret: Secret::new(""),
            scope: None,
        };
        let provision = Provision {
            gateway_id: "gw".into(),
            route_keys: vec![],
            instance_id: None,
            wake_url: Some("https://w".into()),
            grant,
        };
        let identity = Identity { platform: Platform::relay(), bot_id: "b".into() };
        let body = provision_body(&provision, &identity);
        assert_eq!(body["wakeUrl"], "https://w");
        assert!(body.get("instanceId").is_none());
        assert_eq!(body["gatewayEndpoint"], "");
    }
}
