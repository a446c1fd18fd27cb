//! Access policy: who may talk to the agent. The same settings for every platform.

use std::collections::BTreeMap;

use petasos_config::keys::{any, gateway};
use petasos_config::limits::Denied;
use petasos_config::{Settings, choices};
use petasos_core::Platform;
use petasos_core::access::{Access, Bots, PlatformAccess, Strangers, Tier, Tiers};

pub(super) fn access(settings: &Settings, denied: &Denied) -> Access {
    Access {
        allow_all: settings.get(&gateway::ALLOW_ALL_USERS),
        users: settings.get(&gateway::ALLOWED_USERS),
        strangers: stranger_policy(settings.get(&gateway::STRANGERS)),
        platforms: by_platform(|platform| of_platform(settings, denied, platform)),
    }
}

/// Restrictions of commands to administrators.
pub(super) fn tiers(settings: &Settings) -> BTreeMap<Platform, Tiers> {
    let tier = |admins: Vec<String>, commands: Vec<String>| Tier {
        admins,
        commands: (!commands.is_empty()).then_some(commands),
    };
    by_platform(|platform| Tiers {
        dm: tier(settings.on(platform, &any::ADMINS), settings.on(platform, &any::USER_COMMANDS)),
        group: tier(settings.on(platform, &any::GROUP_ADMINS), settings.on(platform, &any::GROUP_COMMANDS)),
    })
}

/// Which other bots the agent answers on a platform.
pub(super) fn bots(settings: &Settings, platform: Platform) -> Bots {
    match settings.on(platform, &any::ALLOW_BOTS) {
        choices::Bots::None => Bots::None,
        choices::Bots::Mentions => Bots::Mentions,
        choices::Bots::All => Bots::All,
    }
}

fn of_platform(settings: &Settings, denied: &Denied, platform: Platform) -> PlatformAccess {
    PlatformAccess {
        allow_all: settings.on(platform, &any::ALLOW_ALL_USERS),
        users: settings.on(platform, &any::ALLOWED_USERS),
        group_users: settings.on(platform, &any::GROUP_ALLOWED_USERS),
        group_chats: settings.on(platform, &any::GROUP_ALLOWED_CHATS),
        bots: bots(settings, platform),
        strangers: settings.on(platform, &any::STRANGERS).map(stranger_policy),
        limits: denied.access.get(&platform).cloned().unwrap_or_default(),
        ..PlatformAccess::default()
    }
}

fn stranger_policy(setting: choices::Strangers) -> Strangers {
    match setting {
        choices::Strangers::Pair => Strangers::Pair,
        choices::Strangers::Ignore => Strangers::Ignore,
    }
}

/// One value for every platform with non-default settings.
fn by_platform<T: Default + PartialEq>(make: impl Fn(Platform) -> T) -> BTreeMap<Platform, T> {
    let values = Platform::all().map(|platform| (platform, make(platform)));
    values.filter(|(_, it)| *it != T::default()).collect()
}
