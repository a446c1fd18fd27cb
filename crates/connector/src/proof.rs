//! Who a gateway is, by the token it shows.

use aws_lc_rs::hmac;
use petasos_gateway::{Error, clock};
use petasos_relay::token::{self, Claim, Refused};
use petasos_store::connector::Gateway;

use crate::shell::Shell;

/// `authorization` as it came.
pub(crate) async fn admit(
    shell: &Shell,
    authorization: Option<&str>,
) -> Result<Result<Gateway, Refused>, Error> {
    let Some(claim) = authorization.and_then(token::bearer).and_then(Claim::read) else {
        return Ok(Err(Refused::Unauthorized));
    };
    let (id, now) = (claim.payload.clone(), clock::now());
    let known = shell.db.read(move |reader| reader.gateway(&id, now)).await?;
    let secrets = known.iter().flat_map(|gateway| &gateway.secrets).map(String::as_str);
    Ok(match (claim.admit(now.0 / 1000, secrets, check), known.clone()) {
        (Ok(()), Some(gateway)) => Ok(gateway),
        (Ok(()), None) => Err(Refused::Unauthorized),
        (Err(refused), _) => Err(refused),
    })
}

/// In constant time.
fn check(secret: &[u8], message: &[u8], signature: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature).is_ok()
}
