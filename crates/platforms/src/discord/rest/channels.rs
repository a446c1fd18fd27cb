//! Channels of the bot's servers, for the directory.

use petasos_core::Fault;
use petasos_core::directory::Channel;
use serde::Deserialize;
use twilight_model::id::Id;
use twilight_model::id::marker::GuildMarker;

use crate::discord::{Discord, Error, wire};

/// Bots on more servers need verification by Discord.
const MAX_GUILDS: usize = 100;
const TEXT: u8 = 0;
const ANNOUNCEMENTS: u8 = 5;
const FORUM: u8 = 15;

#[derive(Deserialize)]
struct GuildSummary {
    id: Id<GuildMarker>,
    name: String,
}

impl Discord {
    pub async fn channels(&self) -> Result<Vec<Channel>, Error> {
        let guilds: Vec<GuildSummary> = self.api.get("/users/@me/guilds?limit=200").await?;
        if guilds.len() > MAX_GUILDS {
            tracing::info!(
                platform = "discord",
                guilds = guilds.len(),
                "only the first {MAX_GUILDS} servers are listed"
            );
        }
        let mut found = Vec::new();
        for guild in guilds.iter().take(MAX_GUILDS) {
            match self.api.get::<Vec<wire::DiscordChannel>>(&format!("/guilds/{}/channels", guild.id)).await {
                Ok(channels) => found.extend(channels.iter().filter_map(|it| channel(it, &guild.name))),
                // A server that refuses its list does not hide the others.
                Err(error) if error.fault() == Fault::Refused => {
                    tracing::warn!(platform = "discord", guild = %guild.id, %error, "cannot list the channels of a server");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// `None`: the channel has no messages of its own.
fn channel(listed: &wire::DiscordChannel, guild: &str) -> Option<Channel> {
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
