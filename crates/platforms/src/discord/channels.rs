//! The channels of the servers that the bot is on, for the directory.

use petasos_core::Fault;
use petasos_core::directory::Channel;
use serde::Deserialize;
use twilight_model::id::Id;
use twilight_model::id::marker::GuildMarker;

use super::{Discord, Error, wire};

/// Servers that are asked; Discord itself wants bots on more to be verified.
const GUILDS: usize = 100;
const TEXT: u8 = 0;
const ANNOUNCEMENTS: u8 = 5;
const FORUM: u8 = 15;

#[derive(Deserialize)]
struct Guild {
    id: Id<GuildMarker>,
    name: String,
}

impl Discord {
    pub async fn channels(&self) -> Result<Vec<Channel>, Error> {
        let guilds: Vec<Guild> = self.api.get("/users/@me/guilds?limit=200").await?;
        if guilds.len() > GUILDS {
            tracing::info!(
                platform = "discord",
                guilds = guilds.len(),
                "only the first {GUILDS} servers are listed"
            );
        }
        let mut found = Vec::new();
        for guild in guilds.iter().take(GUILDS) {
            match self.api.get::<Vec<wire::Channel>>(&format!("/guilds/{}/channels", guild.id)).await {
                Ok(channels) => found.extend(channels.iter().filter_map(|it| channel(it, &guild.name))),
                // One server that shows us nothing does not hide the others.
                Err(error) if error.fault() == Fault::Refused => {
                    tracing::warn!(platform = "discord", guild = %guild.id, %error, "a server does not list its channels");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// `None`: nobody writes there, or only in threads below it.
fn channel(listed: &wire::Channel, guild: &str) -> Option<Channel> {
    let kind = match listed.kind {
        TEXT | ANNOUNCEMENTS => "channel",
        FORUM => "forum",
        _other => return None,
    };
    Some(Channel {
        id: listed.id.to_string(),
        name: listed.name.clone().unwrap_or_else(|| listed.id.to_string()),
        kind: kind.to_owned(),
        guild: Some(guild.to_owned()),
        thread_id: None,
    })
}
