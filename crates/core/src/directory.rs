//! The chats we know of, by name: `discord:#general` instead of a number.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::message::Platform;
use crate::target::Place;

/// As it stands in `channel_directory.json`. The platforms are names, because others may write there, too.
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
    /// `channel`, `forum`, `private`, `dm`, `group`, `thread`; whatever a platform has.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The server or workspace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// `channel_aliases.json`: names that the owner gave, by platform and id.
pub type Aliases = BTreeMap<String, BTreeMap<String, String>>;

/// What kind a chat has that only its owner has named.
const ALIAS: &str = "alias";

impl Channel {
    /// Whether only the owner knows of it.
    pub fn is_alias(&self) -> bool {
        self.kind == ALIAS
    }

    /// How a person would say it.
    pub fn label(&self) -> String {
        match &self.guild {
            Some(guild) => alloc::format!("{guild}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    Unknown,
    /// It could be any of these.
    Several(Vec<String>),
}

impl Directory {
    pub fn of(&self, platform: Platform) -> &[Channel] {
        self.platforms.get(platform.as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Puts the owner's names over what the platforms say, and adds the chats that only the owner knows.
    #[must_use]
    pub fn with_aliases(mut self, aliases: &Aliases) -> Self {
        for (platform, names) in aliases {
            let channels = self.platforms.entry(platform.to_lowercase()).or_default();
            for (id, name) in names {
                let mut known = false;
                for channel in channels.iter_mut().filter(|it| it.id == *id && it.thread_id.is_none()) {
                    (channel.name, known) = (name.clone(), true);
                }
                if !known {
                    let (id, name, kind) = (id.clone(), name.clone(), ALIAS.to_string());
                    channels.push(Channel { id, name, kind, guild: None, thread_id: None });
                }
            }
        }
        self
    }

    /// By id, then by name, then by server and name, then by the beginning of a name that only one has.
    pub fn resolve(&self, platform: Platform, wanted: &str) -> Result<Place, Unresolved> {
        let channels = self.of(platform);
        let wanted = wanted.trim();
        let bare = folded(wanted);
        let by = |test: &dyn Fn(&Channel) -> bool| -> Vec<&Channel> {
            channels.iter().filter(|channel| test(channel)).collect()
        };
        let named = |channel: &Channel| {
            let name = folded(&channel.name);
            name == bare || alloc::format!("{name} ({})", channel.kind.to_lowercase()) == bare
        };
        let in_guild = |channel: &Channel| {
            let path = bare.split_once('/').map(|(guild, name)| (guild.trim(), folded(name)));
            path.is_some_and(|(guild, name)| {
                channel.guild.as_deref().is_some_and(|it| it.to_lowercase() == guild)
                    && folded(&channel.name) == name
            })
        };
        let begins = |channel: &Channel| !bare.is_empty() && folded(&channel.name).starts_with(&bare);
        let exact = |channel: &Channel| channel.id == wanted && channel.thread_id.is_none();
        let tests: [&dyn Fn(&Channel) -> bool; 4] = [&exact, &named, &in_guild, &begins];
        let found = tests.iter().map(|test| by(test)).find(|found| !found.is_empty()).unwrap_or_default();
        match found.as_slice() {
            [] => Err(Unresolved::Unknown),
            [one] => Ok(Place { platform, chat_id: one.id.clone(), thread_id: one.thread_id.clone() }),
            several => Err(Unresolved::Several(several.iter().map(|channel| channel.label()).collect())),
        }
    }
}

fn folded(name: &str) -> String {
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
    fn check(wanted: &str, want: Result<&str, Unresolved>) {
        let platform = Platform::parse("discord").unwrap();
        let found = directory().resolve(platform, wanted).map(|place| place.chat_id);
        assert_eq!(found, want.map(ToString::to_string), "{wanted:?}");
    }

    #[test]
    fn a_name_is_looked_up_by_id_name_server_and_beginning() {
        check("1", Ok("1"));
        check("#random", Ok("3"));
        check("Releases (forum)", Ok("4"));
        check("acme/#general", Ok("1"));
        check("ran", Ok("3"));
        check("r", Err(Unresolved::Several(["Acme/Random", "Acme/releases"].map(Into::into).into())));
        check("general", Err(Unresolved::Several(["Acme/general", "Home/general"].map(Into::into).into())));
        check("nowhere", Err(Unresolved::Unknown));
        check("", Err(Unresolved::Unknown));
    }

    #[test]
    fn the_owners_names_win_and_add_what_is_missing() {
        let names = [("3", "den"), ("9", "attic")].map(|(id, name)| (id.to_string(), name.to_string()));
        let aliases = Aliases::from([("Discord".into(), BTreeMap::from(names))]);
        let directory = directory().with_aliases(&aliases);
        let platform = Platform::parse("discord").unwrap();
        for (name, id) in [("den", "3"), ("attic", "9")] {
            assert_eq!(directory.resolve(platform, name).unwrap().chat_id, id);
        }
        assert_eq!(directory.resolve(platform, "random"), Err(Unresolved::Unknown));
    }

    #[test]
    fn it_is_written_as_others_read_it() {
        let text = serde_json::to_string(&directory().of(Platform::parse("discord").unwrap())[3]).unwrap();
        assert_eq!(text, r#"{"id":"4","name":"releases","type":"forum","guild":"Acme"}"#);
    }
}
