//! Who may talk to the agent.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::access::{Access, Bots, PlatformAccess, Strangers};

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

fn strangers(settings: &Settings, path: &str) -> Option<Strangers> {
    settings.text(path).map(|word| if word == "ignore" { Strangers::Ignore } else { Strangers::Pair })
}
