//! Channels that the bot is in, for the directory.

use petasos_core::directory::Channel;
use serde::Deserialize;

use crate::slack::{Error, Slack};

const PAGE_SIZE: &str = "200";
/// Per workspace.
const MAX_PAGES: usize = 20;

#[derive(Deserialize)]
struct ChannelListPage {
    #[serde(default)]
    channels: Vec<ListedChannel>,
    response_metadata: Option<PageMetadata>,
}

#[derive(Deserialize)]
struct ListedChannel {
    id: String,
    name: Option<String>,
    #[serde(default)]
    is_private: bool,
}

#[derive(Deserialize)]
struct PageMetadata {
    next_cursor: Option<String>,
}

impl Slack {
    pub async fn channels(&self) -> Result<Vec<Channel>, Error> {
        let workspaces = self.state().workspaces.clone().0;
        let several = workspaces.len() > 1;
        let mut found = Vec::new();
        for bot in &workspaces {
            let guild = several.then(|| bot.team.clone());
            let mut cursor = String::new();
            for _page in 0..MAX_PAGES {
                let query = [
                    ("types", "public_channel,private_channel"),
                    ("exclude_archived", "true"),
                    ("limit", PAGE_SIZE),
                    ("cursor", &cursor),
                ];
                let page: ChannelListPage = self.api.get(&bot.token, "users.conversations", &query).await?;
                found.extend(page.channels.into_iter().map(|it| channel(it, guild.clone())));
                cursor = page.response_metadata.and_then(|it| it.next_cursor).unwrap_or_default();
                if cursor.is_empty() {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn channel(listed: ListedChannel, guild: Option<String>) -> Channel {
    let kind = if listed.is_private { "private" } else { "channel" };
    let name = listed.name.unwrap_or_else(|| listed.id.clone());
    Channel { id: listed.id, name, kind: kind.to_owned(), guild, thread_id: None }
}
