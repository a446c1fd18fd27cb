//! Session context of tool calls: one value per turn, passed explicitly, so that concurrent sessions cannot
//! see each other's chat, user or channel.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::{Millis, SessionId, SessionKey, Source};
use petasos_runtime::clock;
use tokio::time::Instant;

use super::Respondent;

#[derive(Debug, Clone)]
pub struct SessionCtx {
    pub key: SessionKey,
    pub session: SessionId,
    /// Platform, chat, thread, user, and the message that asked.
    pub source: Source,
    /// Whether this turn's channel can deliver messages after the response. A property of the turn: the
    /// session may be reached over another channel next time.
    pub async_delivery: AsyncDelivery,
    /// The person who can be asked; like `async_delivery` a property of the turn.
    pub respondent: Respondent,
    /// Id of the running call; empty between calls.
    pub call: String,
    pub home: PathBuf,
    /// Root of the file tools and start directory of commands. Created if missing.
    pub workspace: PathBuf,
    /// Folders of files sent in this session: readable, never written.
    pub sent: Vec<PathBuf>,
    /// Folder for oversized results; readable like `sent`.
    pub results: PathBuf,
    /// Long operations report progress here.
    pub heartbeat: TurnHeartbeat,
    pub now: Millis,
    pub timezone: Option<String>,
}

/// Heartbeat of a turn; the turn is aborted when it stays silent for too long.
#[derive(Debug, Clone)]
pub struct TurnHeartbeat {
    since: Instant,
    /// Milliseconds from `since` to the last heartbeat.
    last: Arc<AtomicU64>,
}

impl Default for TurnHeartbeat {
    fn default() -> Self {
        Self { since: clock::monotonic(), last: Arc::default() }
    }
}

impl TurnHeartbeat {
    pub fn record(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    pub fn last(&self) -> Instant {
        self.since + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Whether messages can be delivered after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AsyncDelivery {
    /// Also the default of channels that declare nothing.
    #[default]
    Supported,
    Unsupported,
}

impl From<bool> for AsyncDelivery {
    fn from(async_delivery: bool) -> Self {
        if async_delivery { Self::Supported } else { Self::Unsupported }
    }
}

pub(crate) const CRON_VARIABLES: [&str; 3] = [
    "HERMES_CRON_AUTO_DELIVER_PLATFORM",
    "HERMES_CRON_AUTO_DELIVER_CHAT_ID",
    "HERMES_CRON_AUTO_DELIVER_THREAD_ID",
];

impl SessionCtx {
    pub fn supports_async_delivery(&self) -> bool {
        self.async_delivery == AsyncDelivery::Supported
    }

    /// Session variables of child processes. Empty ones are included, so that inherited values never show
    /// through. The delivery capability is not exported.
    pub(crate) fn variables(&self) -> [(&'static str, String); 12] {
        let source = &self.source;
        let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
        [
            ("HERMES_SESSION_PLATFORM", source.platform.to_string()),
            ("HERMES_SESSION_SOURCE", String::new()),
            ("HERMES_SESSION_CHAT_ID", or_empty(&source.chat_id)),
            ("HERMES_SESSION_CHAT_NAME", or_empty(&source.chat_name)),
            ("HERMES_SESSION_THREAD_ID", or_empty(&source.thread_id)),
            ("HERMES_SESSION_USER_ID", or_empty(&source.user_id)),
            ("HERMES_SESSION_USER_NAME", or_empty(&source.user_name)),
            ("HERMES_SESSION_KEY", self.key.to_string()),
            ("HERMES_SESSION_ID", self.session.to_string()),
            ("HERMES_UI_SESSION_ID", String::new()),
            ("HERMES_SESSION_MESSAGE_ID", or_empty(&source.message_id)),
            ("HERMES_SESSION_PROFILE", or_empty(&source.profile)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;
    use petasos_core::message::ChatType;

    use super::*;

    #[test]
    fn async_delivery_is_supported_by_default() {
        assert_eq!(AsyncDelivery::default(), AsyncDelivery::Supported);
        assert_eq!(
            (AsyncDelivery::from(true), AsyncDelivery::from(false)),
            (AsyncDelivery::Supported, AsyncDelivery::Unsupported)
        );
    }

    #[test]
    fn children_get_identity_but_no_delivery_capability() {
        let mut source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "123");
        source.thread_id = Some("7".into());
        let ctx = SessionCtx {
            key: SessionKey("agent:main:telegram:dm:123".into()),
            session: SessionId("s1".into()),
            source,
            async_delivery: AsyncDelivery::Unsupported,
            respondent: Respondent::None,
            call: String::new(),
            home: "/home".into(),
            workspace: "/home/workspace".into(),
            sent: vec![],
            results: "/home/cache/results/1".into(),
            heartbeat: TurnHeartbeat::default(),
            now: Millis(0),
            timezone: None,
        };
        let variables = ctx.variables();
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("HERMES_SESSION_PLATFORM"), Some("telegram"));
        assert_eq!(value("HERMES_SESSION_KEY"), Some("agent:main:telegram:dm:123"));
        assert_eq!(value("HERMES_SESSION_THREAD_ID"), Some("7"));
        assert_eq!(value("HERMES_SESSION_USER_ID"), Some(""), "bound, and empty");
        assert_eq!(value("HERMES_SESSION_ASYNC_DELIVERY"), None);
    }
}
