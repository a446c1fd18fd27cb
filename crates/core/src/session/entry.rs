//! Session entries: the transcript bound to a session key, and pending resumes and resets.
//!
//! Parsing is lenient, since other programs and versions write these files: unknown fields are ignored, and an invalid
//! value counts as missing. Only the two names and the two times are required. Credentials are never read, so they cannot
//! be written back.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::{is_valid_id, is_valid_key};
use super::local::LocalTime;
use crate::ids::{SessionId, SessionKey};
use crate::message::{ChatType, Platform, Source};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub session_key: SessionKey,
    pub session_id: SessionId,
    pub created_at: LocalTime,
    pub updated_at: LocalTime,
    #[serde(default, deserialize_with = "or_default")]
    pub display_name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub platform: Option<Platform>,
    #[serde(default, deserialize_with = "or_default")]
    pub chat_type: ChatType,
    #[serde(default, deserialize_with = "or_default")]
    pub input_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub output_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub cache_read_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub cache_write_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub total_tokens: u64,
    /// Size of the last prompt; zero: the model was never called.
    #[serde(default, deserialize_with = "or_default")]
    pub last_prompt_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub estimated_cost_usd: f64,
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub cost_status: String,
    /// The end of an expired session has been handled. `memory_flushed` in older files.
    #[serde(default, alias = "memory_flushed", deserialize_with = "or_default")]
    pub expiry_finalized: bool,
    /// The next message starts a new transcript, regardless of other marks.
    #[serde(default, deserialize_with = "or_default")]
    pub suspended: bool,
    /// A turn was interrupted and is resumed next.
    #[serde(default, deserialize_with = "or_default")]
    pub resume_pending: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub resume_reason: Option<ResumeReason>,
    #[serde(default, deserialize_with = "or_default")]
    pub last_resume_marked_at: Option<LocalTime>,
    /// `/new` began this session, and no message has followed. Only other programs read it.
    #[serde(default, deserialize_with = "or_default")]
    pub is_fresh_reset: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub was_auto_reset: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub auto_reset_reason: Option<ResetReason>,
    /// The reset session had at least one model call.
    #[serde(default, deserialize_with = "or_default")]
    pub reset_had_activity: bool,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub model_override: Option<ModelOverride>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub origin: Option<Source>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelOverride {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumeReason {
    RestartTimeout,
    ShutdownTimeout,
    RestartInterrupted,
    /// Written by another program.
    Other(String),
}

/// Why a session was reset automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetReason {
    Idle,
    Daily,
    Suspended,
    ResumePendingExpired,
}

impl Entry {
    /// Adds the cost of a model call. Calls without a price are not counted, so the sum is an estimate.
    pub fn add_cost(&mut self, micro_usd: u64) {
        #[expect(clippy::cast_precision_loss, reason = "an amount of money for display")]
        let dollars = micro_usd as f64 / 1e6;
        self.estimated_cost_usd += dollars;
        "estimated".clone_into(&mut self.cost_status);
    }

    pub fn new(key: SessionKey, id: SessionId, origin: Option<Source>, now: LocalTime) -> Self {
        let name = |it: &Source| it.chat_name.clone().or_else(|| it.user_name.clone());
        Self {
            session_key: key,
            session_id: id,
            created_at: now,
            updated_at: now,
            display_name: origin.as_ref().and_then(name),
            platform: origin.as_ref().map(|it| it.platform),
            chat_type: origin.as_ref().map(|it| it.chat_type).unwrap_or_default(),
            input_tokens: 0,
            output_tokens: 0,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            total_tokens: 0,
            last_prompt_tokens: 0,
            estimated_cost_usd: 0.0,
            cost_status: unknown(),
            expiry_finalized: false,
            suspended: false,
            resume_pending: false,
            resume_reason: None,
            last_resume_marked_at: None,
            is_fresh_reset: false,
            was_auto_reset: false,
            auto_reset_reason: None,
            reset_had_activity: false,
            model_override: None,
            origin,
        }
    }

    /// Whether key and id are safe as names of rows and files.
    pub fn has_valid_names(&self) -> bool {
        is_valid_key(self.session_key.as_str()) && is_valid_id(self.session_id.as_str())
    }
}

impl ResumeReason {
    pub fn as_str(&self) -> &str {
        match self {
            Self::RestartTimeout => "restart_timeout",
            Self::ShutdownTimeout => "shutdown_timeout",
            Self::RestartInterrupted => "restart_interrupted",
            Self::Other(name) => name,
        }
    }

    pub fn parse(name: &str) -> Self {
        [Self::RestartTimeout, Self::ShutdownTimeout, Self::RestartInterrupted]
            .into_iter()
            .find(|reason| reason.as_str() == name)
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl Serialize for ResumeReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ResumeReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::parse(&name))
    }
}

impl ResetReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Daily => "daily",
            Self::Suspended => "suspended",
            Self::ResumePendingExpired => "resume_pending_expired",
        }
    }
}

/// The file `sessions.json`. Invalid entries are skipped.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Routing(pub BTreeMap<SessionKey, Entry>);

impl<'de> Deserialize<'de> for Routing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Routing;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of session entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Routing, A::Error> {
        let mut routing = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, Lenient<Entry>>()? {
            let entry = value.value().filter(|entry| entry.has_valid_names());
            let Some(entry) = entry.filter(|_| !key.starts_with('_') && is_valid_key(&key)) else {
                continue;
            };
            routing.insert(SessionKey(key), entry);
        }
        Ok(Routing(routing))
    }
}

/// A value of the expected type, or any other.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Lenient<T> {
    Valid(T),
    Invalid(IgnoredAny),
}

impl<T> Lenient<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Valid(value) => Some(value),
            Self::Invalid(IgnoredAny) => None,
        }
    }
}

pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Lenient::deserialize(deserializer).map(|value| value.value().unwrap_or_default())
}

fn or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Lenient::deserialize(deserializer).map(|value| value.value().unwrap_or_else(unknown))
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
