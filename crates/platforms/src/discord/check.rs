//! Whether the token works and the bot may read what people write.

use serde::Deserialize;
use twilight_model::gateway::CloseCode;

use super::{Discord, Error, wire};

/// Flags of an application that may read messages: granted, and granted to a small bot.
const MESSAGE_CONTENT: u64 = (1 << 18) | (1 << 19);

#[derive(Deserialize)]
struct Application {
    #[serde(default)]
    flags: u64,
}

impl Discord {
    pub async fn check(&self) -> Result<String, Error> {
        let me: wire::User = self.api.get("/users/@me").await?;
        let application: Application = self.api.get("/applications/@me").await?;
        if application.flags & MESSAGE_CONTENT == 0 {
            return Err(Error::Barred(CloseCode::DisallowedIntents));
        }
        Ok(me.username)
    }
}
