//! The channel directory: names for chats, such as `discord:#general`.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::message::Platform;
use crate::target::ChatAddress;

/// The file `channel_directory.json`. Platforms are plain names because other programs write the file as well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Directory {
    #[serde(default)]
    pub updated_at: Option<String>,
    #[serde(default)]
    pub platforms: BTreeMap<String, Vec<Channel>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    pub id: String,
    pub name: String,
    /// `channel`, `forum`, `private`, `dm`, `group`, `thread` or any other kind of the platform.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// The file `channel_aliases.json`: names set by the owner, by platform and id.
pub type Aliases = BTreeMap<String, BTreeMap<String, String>>;

/// The kind of a chat that is only known by its alias.
const ALIAS: &str = "alias";

impl Channel {
    pub fn is_alias(&self) -> bool {
        self.kind == ALIAS
    }

    pub fn label(&self) -> String {
        match &self.guild {
            Some(guild) => alloc::format!("{guild}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    Unknown,
    /// Ambiguous: the labels of the matches.
    Several(Vec<String>),
}

impl Directory {
    pub fn channels(&self, platform: Platform) -> &[Channel] {
        self.platforms.get(platform.as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Applies the owner's aliases and adds chats that are only known by their alias.
    #[must_use]
    pub fn with_aliases(mut self, aliases: &Aliases) -> Self {
        for (platform, names) in aliases {
            let channels = self.platforms.entry(platform.to_lowercase()).or_default();
            for (id, name) in names {
                let mut known = false;
                for channel in channels.iter_mut().filter(|it| it.id == *id && it.thread_id.is_none()) {
                    channel.name = name.clone();
                    known = true;
                }
                if !known {
                    let id = id.clone();
                    let name = name.clone();
                    let kind = ALIAS.to_string();
                    channels.push(Channel { id, name, kind, guild: None, thread_id: None });
                }
            }
        }
        self
    }

    /// By id, then name, then server and name, then a unique prefix of a name.
    pub fn resolve(&self, platform: Platform, wanted: &str) -> Result<ChatAddress, ResolveError> {
        let channels = self.channels(platform);
        let wanted = wanted.trim();
        let bare = fold(wanted);
        let by = |test: &dyn Fn(&Channel) -> bool| -> Vec<&Channel> {
            channels.iter().filter(|channel| test(channel)).collect()
        };
        let named = |channel: &Channel| {
            let name = fold(&channel.name);
            name == bare || alloc::format!("{name} ({})", channel.kind.to_lowercase()) == bare
        };
        let in_guild = |channel: &Channel| {
            let path = bare.split_once('/').map(|(guild, name)| (guild.trim(), fold(name)));
            path.is_some_and(|(guild, name)| {
                channel.guild.as_deref().is_some_and(|it| it.to_lowercase() == guild)
                    && fold(&channel.name) == name
            })
        };
        let begins = |channel: &Channel| !bare.is_empty() && fold(&channel.name).starts_with(&bare);
        let exact = |channel: &Channel| channel.id == wanted && channel.thread_id.is_none();
        let tests: [&dyn Fn(&Channel) -> bool; 4] = [&exact, &named, &in_guild, &begins];
        let found = tests.iter().map(|test| by(test)).find(|found| !found.is_empty()).unwrap_or_default();
        match found.as_slice() {
            [] => Err(ResolveError::Unknown),
            [one] => Ok(ChatAddress { platform, chat_id: one.id.clone(), thread_id: one.thread_id.clone() }),
            several => Err(ResolveError::Several(several.iter().map(|channel| channel.label()).collect())),
        }
    }
}

fn fold(name: &str) -> String {
    let name = name.trim();
    name.strip_prefix('#').unwrap_or(name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(id: &str, name: &str, kind: &str, guild: Option<&str>) -> Channel {
        let guild = guild.map(ToString::to_string);
        Channel { id: id.into(), name: name.into(), kind: kind.into(), guild, thread_id: None }
    }

    fn directory() -> Directory {
        let channels = alloc::vec![
            channel("1", "general", "channel", Some("Acme")),
            channel("2", "general", "channel", Some("Home")),
            channel("3", "Random", "channel", Some("Acme")),
            channel("4", "releases", "forum", Some("Acme")),
            channel("5", "1", "channel", Some("Home")),
        ];
        Directory { updated_at: None, platforms: BTreeMap::from([("discord".into(), channels)]) }
    }

    #[track_caller]
    fn check(wanted: &str, want: Result<&str, ResolveError>) {
        let platform = Platform::parse("discord").unwrap();
        let found = directory().resolve(platform, wanted).map(|place| place.chat_id);
        assert_eq!(found, want.map(ToString::to_string), "{wanted:?}");
    }

    #[test]
    fn resolves_by_id_name_server_and_unique_prefix() {
        check("1", Ok("1"));
        check("#random", Ok("3"));
        check("Releases (forum)", Ok("4"));
        check("acme/#general", Ok("1"));
        check("ran", Ok("3"));
        check("r", Err(ResolveError::Several(["Acme/Random", "Acme/releases"].map(Into::into).into())));
        check("general", Err(ResolveError::Several(["Acme/general", "Home/general"].map(Into::into).into())));
        check("nowhere", Err(ResolveError::Unknown));
        check("", Err(ResolveError::Unknown));
    }

    #[test]
    fn aliases_override_names_and_add_chats() {
        let names = [("3", "den"), ("9", "attic")].map(|(id, name)| (id.to_string(), name.to_string()));
        let aliases = Aliases::from([("Discord".into(), BTreeMap::from(names))]);
        let directory = directory().with_aliases(&aliases);
        let platform = Platform::parse("discord").unwrap();
        for (name, id) in [("den", "3"), ("attic", "9")] {
            assert_eq!(directory.resolve(platform, name).unwrap().chat_id, id);
        }
        assert_eq!(directory.resolve(platform, "random"), Err(ResolveError::Unknown));
    }

    #[test]
    fn serializes_channels_in_the_shared_format() {
        let text =
            serde_json::to_string(&directory().channels(Platform::parse("discord").unwrap())[3]).unwrap();
        assert_eq!(text, r#"{"id":"4","name":"releases","type":"forum","guild":"Acme"}"#);
    }
}
