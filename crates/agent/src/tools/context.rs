//! Who asks, and where: one value, made for a turn and handed to every tool call. Nothing about a session is
//! ambient, so one that runs beside another cannot see its chat, its user or what its channel can do.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_core::{Millis, SessionId, SessionKey, Source};
use tokio::time::Instant;

use super::Person;

#[derive(Debug, Clone)]
pub struct SessionCtx {
    pub key: SessionKey,
    pub session: SessionId,
    /// Platform, chat, thread, user, and the message that asked.
    pub source: Source,
    /// Whether the channel that handles this turn can bring something after the answer. It belongs to the turn: the
    /// same session may be asked over another channel next time.
    pub later: Later,
    /// Who can be asked while it runs; like `later`, of this turn alone.
    pub person: Person,
    /// The call that is being run; empty between calls.
    pub call: String,
    pub home: PathBuf,
    /// The directory the file tools are confined to, and where commands start. Made if missing.
    pub workspace: PathBuf,
    /// The directories of files that people sent in this session: the file tools read them and never write there.
    pub sent: Vec<PathBuf>,
    /// Where results of this session go that are too large for the model. Read like what was sent.
    pub results: PathBuf,
    /// Told by whatever takes long that it still goes on.
    pub alive: Alive,
    pub now: Millis,
    /// IANA name; `None`: the system's.
    pub timezone: Option<String>,
}

/// Signs of life of a turn: whoever waits for it gives up when no more come.
#[derive(Debug, Clone)]
pub struct Alive {
    since: Instant,
    /// Milliseconds from then to the last one.
    last: Arc<AtomicU64>,
}

impl Default for Alive {
    fn default() -> Self {
        Self { since: Instant::now(), last: Arc::default() }
    }
}

impl Alive {
    pub fn sign(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    pub fn last(&self) -> Instant {
        self.since + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Whether something can be delivered after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Later {
    /// Also for whoever says nothing about it.
    #[default]
    Supported,
    /// The channel ends with the response.
    Unsupported,
}

impl From<bool> for Later {
    fn from(async_delivery: bool) -> Self {
        if async_delivery { Self::Supported } else { Self::Unsupported }
    }
}

/// Set for one scheduled job; never inherited.
pub(crate) const NOT_OURS: [&str; 3] = [
    "HERMES_CRON_AUTO_DELIVER_PLATFORM",
    "HERMES_CRON_AUTO_DELIVER_CHAT_ID",
    "HERMES_CRON_AUTO_DELIVER_THREAD_ID",
];

impl SessionCtx {
    pub fn delivers_later(&self) -> bool {
        self.later == Later::Supported
    }

    /// What child processes learn of the session, the empty ones included: whatever the gateway itself inherited
    /// under these names does not shine through. What the channel can do is not among them.
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
    fn whoever_says_nothing_can_deliver_later() {
        assert_eq!(Later::default(), Later::Supported);
        assert_eq!((Later::from(true), Later::from(false)), (Later::Supported, Later::Unsupported));
    }

    #[test]
    fn children_learn_who_asked_and_nothing_of_what_the_channel_can_do() {
        let mut source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "123");
        source.thread_id = Some("7".into());
        let ctx = SessionCtx {
            key: SessionKey("agent:main:telegram:dm:123".into()),
            session: SessionId("s1".into()),
            source,
            later: Later::Unsupported,
            person: Person::Nobody,
            call: String::new(),
            home: "/home".into(),
            workspace: "/home/workspace".into(),
            sent: vec![],
            results: "/home/cache/results/1".into(),
            alive: Alive::default(),
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
