//! Which files may leave, and which may come in.

use std::ffi::OsString;
use std::path::PathBuf;

use petasos_gateway::{Inward, Policy};

use super::workspace;
use crate::config::{Home, Settings};

/// What the agent writes may always leave, and what it was sent may go back where it came from; the rest is for the
/// owner to say.
pub(super) fn policy(home: &Home, settings: &Settings, env: impl Fn(&str) -> Option<OsString>) -> Policy {
    let user = env("HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = settings.list("gateway.media_allow_dirs");
    // A list of folders may also be written as the shell writes one.
    let named = named.iter().flat_map(|entry| entry.split(':')).map(str::trim);
    let named =
        named.filter(|folder| !folder.is_empty()).filter_map(|folder| match folder.strip_prefix("~/") {
            Some(rest) => user.as_ref().map(|user| user.join(rest)),
            None => Some(PathBuf::from(folder)),
        });
    let own = [workspace(home, settings)];
    Policy {
        home: home.path().into(),
        allowed: own.into_iter().chain(named).collect(),
        strict: settings.flag("gateway.strict"),
        user,
        ..Policy::default()
    }
}

/// Zero means that there is no limit.
pub(super) fn inward(settings: &Settings) -> Inward {
    let limit = |key| settings.count(key).filter(|most| *most > 0);
    let most = limit("gateway.max_inbound_media_bytes");
    Inward { most, total: limit("gateway.max_media_cache_bytes"), ..Inward::default() }
}
