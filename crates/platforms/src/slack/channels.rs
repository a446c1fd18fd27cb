//! The channels that the bot is in, for the directory.

use petasos_core::directory::Channel;
use serde::Deserialize;

use super::{Error, Slack};

const PAGE: &str = "200";
/// Pages that are asked for in one workspace.
const PAGES: usize = 20;

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    channels: Vec<Conversation>,
    response_metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Conversation {
    id: String,
    name: Option<String>,
    #[serde(default)]
    is_private: bool,
}

#[derive(Deserialize)]
struct Metadata {
    next_cursor: Option<String>,
}

impl Slack {
    pub async fn channels(&self) -> Result<Vec<Channel>, Error> {
        let teams = self.memory().teams.clone().0;
        let several = teams.len() > 1;
        let mut found = Vec::new();
        for me in &teams {
            let guild = several.then(|| me.team.clone());
            let mut cursor = String::new();
            for _page in 0..PAGES {
                let query = [
                    ("types", "public_channel,private_channel"),
                    ("exclude_archived", "true"),
                    ("limit", PAGE),
                    ("cursor", &cursor),
                ];
                let listed: Listed = self.api.get(&me.token, "users.conversations", &query).await?;
                found.extend(listed.channels.into_iter().map(|it| channel(it, guild.clone())));
                cursor = listed.response_metadata.and_then(|it| it.next_cursor).unwrap_or_default();
                if cursor.is_empty() {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn channel(listed: Conversation, guild: Option<String>) -> Channel {
    let kind = if listed.is_private { "private" } else { "channel" };
    let name = listed.name.unwrap_or_else(|| listed.id.clone());
    Channel { id: listed.id, name, kind: kind.to_owned(), guild, thread_id: None }
}
