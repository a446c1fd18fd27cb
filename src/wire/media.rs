//! Policies for outgoing attachments and inbound downloads.

use std::ffi::OsString;
use std::path::PathBuf;

use petasos_config::keys::{gateway, sessions};
use petasos_config::{Home, Settings};
use petasos_gateway::{AttachmentPolicy, DownloadSettings};

use super::workspace;

/// Files in the workspace may always be sent, and received files may return to their chat; the owner allows
/// others.
pub(super) fn attachment_policy(
    home: &Home,
    settings: &Settings,
    env: impl Fn(&str) -> Option<OsString>,
) -> AttachmentPolicy {
    let user = env("HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = settings.get(&gateway::MEDIA_DIRS);
    // A list of folders may use the PATH syntax.
    let named = named.iter().flat_map(|entry| entry.split(':')).map(str::trim);
    let named =
        named.filter(|folder| !folder.is_empty()).filter_map(|folder| match folder.strip_prefix("~/") {
            Some(rest) => user.as_ref().map(|user| user.join(rest)),
            None => Some(PathBuf::from(folder)),
        });
    let own = [workspace(home, settings)];
    AttachmentPolicy {
        home: home.path().into(),
        allowed: own.into_iter().chain(named).collect(),
        strict: settings.get(&gateway::STRICT),
        user,
        ..AttachmentPolicy::default()
    }
}

pub(super) fn download_settings(settings: &Settings) -> DownloadSettings {
    let limit = |key| Some(settings.get(key)).filter(|most| *most > 0);
    DownloadSettings {
        max_file_bytes: limit(&gateway::MAX_INBOUND_MEDIA),
        max_cache_bytes: limit(&gateway::MAX_MEDIA_CACHE),
        retention: settings.get(&sessions::RETENTION_CACHE),
        ..DownloadSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use petasos_config::from_texts;

    use super::*;

    #[test]
    fn wires_cache_limits() {
        let day = Duration::from_secs(24 * 3600);
        let wired = |yaml: &str| download_settings(&from_texts(yaml.as_bytes(), b"", []).settings);
        let default = DownloadSettings::default();
        assert_eq!(
            (wired("").retention, wired("").max_cache_bytes),
            (default.retention, default.max_cache_bytes)
        );
        let set = wired("retention: {cache_days: 3}\ngateway: {max_media_cache_bytes: 0}\n");
        assert_eq!((set.retention, set.max_cache_bytes), (3 * day, None));
    }
}
