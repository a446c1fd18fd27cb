//! Who may talk to the agent.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::access::{Access, Bots, PlatformAccess, Strangers, Tier, Tiers};

use crate::config::Settings;

pub(super) fn access(settings: &Settings) -> Access {
    let telegram = Platform::parse("telegram").map(|platform| (platform, telegram(settings)));
    Access {
        allow_all: settings.flag("gateway.allow_all_users"),
        users: settings.list("gateway.allowed_users"),
        strangers: strangers(settings, "unauthorized_dm_behavior").unwrap_or_default(),
        platforms: telegram.into_iter().collect::<BTreeMap<_, _>>(),
    }
}

fn telegram(settings: &Settings) -> PlatformAccess {
    PlatformAccess {
        allow_all: settings.flag("platforms.telegram.allow_all_users"),
        users: settings.list("platforms.telegram.allowed_users"),
        group_users: settings.list("platforms.telegram.group_allowed_users"),
        group_chats: settings.list("platforms.telegram.group_allowed_chats"),
        bots: match settings.text("platforms.telegram.allow_bots").as_deref() {
            Some("mentions") => Bots::Mentions,
            Some("all") => Bots::All,
            Some(_) | None => Bots::None,
        },
        strangers: strangers(settings, "platforms.telegram.unauthorized_dm_behavior"),
        ..PlatformAccess::default()
    }
}

/// Who may use which command, where that is restricted.
pub(super) fn tiers(settings: &Settings) -> BTreeMap<Platform, Tiers> {
    let tier = |admins: &str, commands: &str| {
        let commands = settings.list(commands);
        Tier { admins: settings.list(admins), commands: (!commands.is_empty()).then_some(commands) }
    };
    let telegram = Tiers {
        dm: tier("platforms.telegram.allow_admin_from", "platforms.telegram.user_allowed_commands"),
        group: tier(
            "platforms.telegram.group_allow_admin_from",
            "platforms.telegram.group_user_allowed_commands",
        ),
    };
    Platform::parse("telegram").map(|platform| (platform, telegram)).into_iter().collect()
}

fn strangers(settings: &Settings, path: &str) -> Option<Strangers> {
    settings.text(path).map(|word| if word == "ignore" { Strangers::Ignore } else { Strangers::Pair })
}
