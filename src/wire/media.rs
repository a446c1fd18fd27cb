//! Which files may leave, and which may come in.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
    let days = settings.count("retention.cache_days").unwrap_or(1);
    Inward {
        most,
        total: limit("gateway.max_media_cache_bytes"),
        kept: Duration::from_secs(days * 24 * 3600),
        ..Inward::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_texts;

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
