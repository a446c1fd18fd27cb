//! Who may talk to the agent. The same settings for every platform.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::access::{Access, Bots, PlatformAccess, Strangers, Tier, Tiers};

use crate::config::Settings;

pub(super) fn access(settings: &Settings) -> Access {
    Access {
        allow_all: settings.flag("gateway.allow_all_users"),
        users: settings.list("gateway.allowed_users"),
        strangers: strangers(settings, "unauthorized_dm_behavior").unwrap_or_default(),
        platforms: each(|platform| of_platform(settings, platform)),
    }
}

/// Who may use which command, where that is restricted.
pub(super) fn tiers(settings: &Settings) -> BTreeMap<Platform, Tiers> {
    each(|platform| {
        let list = |key: &str| settings.list(&format!("platforms.{platform}.{key}"));
        let tier = |admins: &str, commands: &str| {
            let commands = list(commands);
            Tier { admins: list(admins), commands: (!commands.is_empty()).then_some(commands) }
        };
        Tiers {
            dm: tier("allow_admin_from", "user_allowed_commands"),
            group: tier("group_allow_admin_from", "group_user_allowed_commands"),
        }
    })
}

/// Which other bots are answered on a platform.
pub(super) fn bots(settings: &Settings, platform: &str) -> Bots {
    match settings.text(&format!("platforms.{platform}.allow_bots")).as_deref() {
        Some("mentions") => Bots::Mentions,
        Some("all") => Bots::All,
        Some(_) | None => Bots::None,
    }
}

fn of_platform(settings: &Settings, platform: &str) -> PlatformAccess {
    let list = |key: &str| settings.list(&format!("platforms.{platform}.{key}"));
    PlatformAccess {
        allow_all: settings.flag(&format!("platforms.{platform}.allow_all_users")),
        users: list("allowed_users"),
        group_users: list("group_allowed_users"),
        group_chats: list("group_allowed_chats"),
        bots: bots(settings, platform),
        strangers: strangers(settings, &format!("platforms.{platform}.unauthorized_dm_behavior")),
        ..PlatformAccess::default()
    }
}

fn strangers(settings: &Settings, path: &str) -> Option<Strangers> {
    settings.text(path).map(|word| if word == "ignore" { Strangers::Ignore } else { Strangers::Pair })
}

/// For every platform for which something was set.
fn each<T: Default + PartialEq>(make: impl Fn(&str) -> T) -> BTreeMap<Platform, T> {
    let made = Platform::known().map(|platform| (platform, make(platform.as_str())));
    made.filter(|(_, it)| *it != T::default()).collect()
}
