//! Failure kinds of the delivery contract.

use petasos_relay::DECLINED;

/// Adapters derive it from the platform's structured codes; `of_text` is for errors without a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    TooLong,
    BadFormat,
    /// Blocked, removed or lacking permissions.
    Forbidden,
    /// The connector in front of the chat lets no message through.
    Declined,
    /// Files (of this kind) are forbidden; texts may be allowed.
    NoFiles,
    ChatNotFound,
    /// A thread, topic or message does not exist; the chat does.
    NotFound,
    RateLimited,
    /// The request had no effect and may succeed later.
    Transient,
    Unknown,
}

/// The first match wins. Read and write timeouts are absent: such a request may have had its effect.
const TEXT_PATTERNS: &[(Kind, &[&str])] = &[
    (Kind::TooLong, &["too long"]),
    (Kind::BadFormat, &["can't parse", "parse entities", "entity", "entities"]),
    (
        Kind::NoFiles,
        &[
            "rights to send photos",
            "rights to send documents",
            "rights to send videos",
            "rights to send video notes",
            "rights to send audios",
            "rights to send voice notes",
            "rights to send animations",
            "rights to send media",
            "restricted receiving of",
            "voice_messages_forbidden",
            "chat_send_photos_forbidden",
            "chat_send_docs_forbidden",
            "chat_send_videos_forbidden",
            "chat_send_roundvideos_forbidden",
            "chat_send_audios_forbidden",
            "chat_send_voices_forbidden",
            "chat_send_gifs_forbidden",
            "chat_send_media_forbidden",
        ],
    ),
    (
        Kind::Forbidden,
        &["forbidden", "blocked", "deactivated", "not enough rights", "no rights", "not a member"],
    ),
    (Kind::ChatNotFound, &["chat not found"]),
    (
        Kind::NotFound,
        &[
            "thread not found",
            "topic not found",
            "message not found",
            "message to edit not found",
            "message to delete not found",
            "message to be replied not found",
        ],
    ),
    (Kind::RateLimited, &["flood", "too many requests", "retry after", "rate limit"]),
    (
        Kind::Transient,
        &[
            "connecterror",
            "connect error",
            "connection error",
            "connection reset",
            "connection refused",
            "connect timeout",
            "connecttimeout",
            "network",
            "broken pipe",
            "remote disconnected",
            "eof",
        ],
    ),
];

const WIRE_NAMES: [(&str, Kind); 10] = [
    ("too_long", Kind::TooLong),
    ("bad_format", Kind::BadFormat),
    ("forbidden", Kind::Forbidden),
    (DECLINED, Kind::Declined),
    ("no_files", Kind::NoFiles),
    ("chat_not_found", Kind::ChatNotFound),
    ("not_found", Kind::NotFound),
    ("rate_limited", Kind::RateLimited),
    ("transient", Kind::Transient),
    ("unknown", Kind::Unknown),
];

impl Kind {
    /// Classifies by text, as a last resort.
    pub fn of_text(text: &str) -> Self {
        let text = text.to_lowercase();
        let hit =
            TEXT_PATTERNS.iter().find(|(_, patterns)| patterns.iter().any(|pattern| text.contains(pattern)));
        hit.map_or(Self::Unknown, |(kind, _)| *kind)
    }

    /// Whether the chat refuses everything until a person changes that.
    pub const fn is_dead_chat(self) -> bool {
        match self {
            Self::Forbidden | Self::Declined | Self::ChatNotFound => true,
            Self::TooLong
            | Self::BadFormat
            | Self::NoFiles
            | Self::NotFound
            | Self::RateLimited
            | Self::Transient
            | Self::Unknown => false,
        }
    }

    /// Name in the relay protocol, as fine-grained as this enum.
    pub fn name(self) -> &'static str {
        WIRE_NAMES.iter().find(|(_, kind)| *kind == self).map_or("unknown", |(name, _)| name)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        WIRE_NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::BadFormat => "bad_format",
            Self::Forbidden | Self::Declined | Self::NoFiles => "forbidden",
            Self::ChatNotFound | Self::NotFound => "not_found",
            Self::RateLimited => "rate_limited",
            Self::Transient => "transient",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct ErrorTextVector {
        error: String,
        kind: String,
        chat_level_not_found: bool,
    }

    #[test]
    fn classifies_error_texts_like_the_vectors() {
        let cases: Vec<ErrorTextVector> =
            serde_json::from_str(include_str!("../tests/vectors/error_kind.json")).expect("vectors");
        for case in cases {
            let kind = Kind::of_text(&case.error);
            assert_eq!(kind.as_str(), case.kind, "{:?}", case.error);
            assert_eq!(kind == Kind::ChatNotFound, case.chat_level_not_found, "{:?}", case.error);
        }
    }
}
