//! Authenticates a gateway by the token of its `Authorization` header.

use aws_lc_rs::hmac;
use petasos_core::GatewayId;
use petasos_gateway::shell::Db;
use petasos_gateway::{Error, clock};
use petasos_relay::token::{self, Claim, Refused};
use petasos_store::connector::GatewayCredentials;

pub(crate) async fn authenticate(
    db: &Db,
    authorization: Option<&str>,
) -> Result<Result<GatewayCredentials, Refused>, Error> {
    let Some(claim) = authorization.and_then(token::bearer).and_then(Claim::read) else {
        return Ok(Err(Refused::Unauthorized));
    };
    let id = GatewayId(claim.payload.clone());
    let now = clock::now();
    let found = db.read(move |reader| reader.gateway(&id, now)).await?;
    let secrets = found.iter().flat_map(|gateway| &gateway.secrets).map(String::as_str);
    Ok(match (claim.admit(now.0 / 1000, secrets, verify), found.clone()) {
        (Ok(()), Some(gateway)) => Ok(gateway),
        (Ok(()), None) => Err(Refused::Unauthorized),
        (Err(refused), _) => Err(refused),
    })
}

/// Constant-time comparison.
fn verify(secret: &[u8], message: &[u8], signature: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature).is_ok()
}
