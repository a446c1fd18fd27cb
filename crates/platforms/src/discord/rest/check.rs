//! Verifies the token and the message content intent.

use serde::Deserialize;
use twilight_model::gateway::CloseCode;

use crate::discord::{Discord, Error, wire};

/// Granted, and granted to a small bot.
const MESSAGE_CONTENT: u64 = (1 << 18) | (1 << 19);

#[derive(Deserialize)]
struct ApplicationFlags {
    #[serde(default)]
    flags: u64,
}

impl Discord {
    pub async fn check(&self) -> Result<String, Error> {
        let me: wire::User = self.api.get("/users/@me").await?;
        let application: ApplicationFlags = self.api.get("/applications/@me").await?;
        if application.flags & MESSAGE_CONTENT == 0 {
            return Err(Error::GatewayClosed(CloseCode::DisallowedIntents));
        }
        Ok(me.username)
    }
}
