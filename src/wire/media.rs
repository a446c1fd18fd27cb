//! Which files may leave, and which may come in.

use std::ffi::OsString;
use std::path::PathBuf;

use petasos_config::keys::{gateway, sessions};
use petasos_config::{Home, Settings};
use petasos_gateway::{Inward, Policy};

use super::workspace;

/// What the agent writes may always leave, and what it was sent may go back where it came from; the rest is for the
/// owner to say.
pub(super) fn policy(home: &Home, settings: &Settings, env: impl Fn(&str) -> Option<OsString>) -> Policy {
    let user = env("HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = settings.get(&gateway::MEDIA_DIRS);
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
        strict: settings.get(&gateway::STRICT),
        user,
        ..Policy::default()
    }
}

/// Zero means that there is no limit.
pub(super) fn inward(settings: &Settings) -> Inward {
    let limit = |key| Some(settings.get(key)).filter(|most| *most > 0);
    Inward {
        most: limit(&gateway::MAX_INBOUND_MEDIA),
        total: limit(&gateway::MAX_MEDIA_CACHE),
        kept: settings.get(&sessions::RETENTION_CACHE),
        ..Inward::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use petasos_config::from_texts;

    use super::*;

    #[test]
    fn wires_the_limits_of_the_cache() {
        let day = Duration::from_secs(24 * 3600);
        let wired = |yaml: &str| inward(&from_texts(yaml.as_bytes(), b"", []).settings);
        let default = Inward::default();
        assert_eq!((wired("").kept, wired("").total), (default.kept, default.total));
        let set = wired("retention: {cache_days: 3}\ngateway: {max_media_cache_bytes: 0}\n");
        assert_eq!((set.kept, set.total), (3 * day, None));
    }
}
