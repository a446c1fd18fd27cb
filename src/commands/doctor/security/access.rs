//! People who may talk to the agent, and administrators.

use std::collections::BTreeSet;

use petasos_config::keys::{agent, any, gateway};
use petasos_config::{Home, Settings};
use petasos_core::Platform;
use petasos_store::Reader;

use super::{Check, Weakness};
use crate::wire::configured_platforms;

const EVERYONE: &str = "Strangers can use the agent and its tools, at the expense of the owner.";
const NO_ADMINS: &str = "Every allowed person may use every command: /restart, /yolo, /platform and others.";

pub(super) fn weaknesses(home: &Home, settings: &Settings) -> Vec<Weakness> {
    let platforms = configured_platforms(settings);
    let on_platform = |platform: &Platform| {
        allow_all(settings, *platform).into_iter().chain(no_admins(home, settings, *platform))
    };
    let found: Vec<_> = platforms.iter().flat_map(on_platform).collect();
    let everywhere = settings
        .get(&gateway::ALLOW_ALL_USERS)
        .then(|| everyone(settings, &gateway::ALLOW_ALL_USERS.to_string()));
    everywhere.into_iter().chain(found).collect()
}

fn everyone(settings: &Settings, key: &str) -> Weakness {
    let fix = format!("remove {key} and list people in allowed_users, or let them pair (petasos pairing)");
    let what = format!("{key} lets everyone talk to the agent");
    if settings.get(&agent::TERMINAL) {
        return Weakness::serious(Check::Access, format!("{what}, and the terminal is on"), EVERYONE, fix);
    }
    Weakness::moderate(Check::Access, what, EVERYONE, fix)
}

fn allow_all(settings: &Settings, platform: Platform) -> Option<Weakness> {
    let key = format!("platforms.{}.allow_all_users", platform.as_str());
    settings.on(platform, &any::ALLOW_ALL_USERS).then(|| everyone(settings, &key))
}

/// Without a list of administrators, everyone is one.
fn no_admins(home: &Home, settings: &Settings, platform: Platform) -> Option<Weakness> {
    if !settings.on(platform, &any::ADMINS).is_empty() {
        return None;
    }
    let everywhere = settings.get(&gateway::ALLOWED_USERS);
    let mut people: BTreeSet<String> =
        everywhere.into_iter().chain(settings.on(platform, &any::ALLOWED_USERS)).collect();
    people.extend(paired(home, platform));
    if people.len() < 2 {
        return None;
    }
    let name = platform.as_str();
    let what =
        format!("{} people may talk to the agent on {name}, and no administrator is named", people.len());
    let fix = format!("list the administrators in platforms.{name}.allow_admin_from");
    Some(Weakness::moderate(Check::Access, what, NO_ADMINS, fix))
}

/// An unreadable database is reported by `petasos doctor`.
fn paired(home: &Home, platform: Platform) -> Vec<String> {
    let state = Reader::open(home.database()).ok().and_then(|reader| reader.pairing_state(platform).ok());
    state.into_iter().flat_map(|state| state.approved).map(|user| user.user_id).collect()
}
