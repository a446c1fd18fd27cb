//! What kind of failure it was, in the words of the delivery contract.

use petasos_relay::DECLINED;

/// Adapters answer from the platform's structured codes; `of_text` is for what has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    TooLong,
    BadFormat,
    /// We may not write there: blocked, removed, no rights.
    Forbidden,
    /// Whoever fronts the chat lets nothing of ours through to it, in whatever form.
    Declined,
    /// We may not send files (of this sort) there. Texts are another matter.
    NoFiles,
    /// The chat itself does not exist.
    ChatNotFound,
    /// A thread, topic or message does not exist; the chat lives.
    NotFound,
    RateLimited,
    /// The request certainly had no effect and may work later.
    Transient,
    Unknown,
}

/// First hit wins. Read and write time-outs are deliberately absent: such a request may have been taken.
const WORDS: &[(Kind, &[&str])] = &[
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

const NAMES: [(&str, Kind); 10] = [
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
    /// The last resort: reading the text.
    pub fn of_text(text: &str) -> Self {
        let text = text.to_lowercase();
        let hit = WORDS.iter().find(|(_, words)| words.iter().any(|word| text.contains(word)));
        hit.map_or(Self::Unknown, |(kind, _)| *kind)
    }

    /// The chat will not take anything from us until somebody there acts.
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

    /// What it is called between a connector and a gateway: as fine as it is.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("unknown", |(name, _)| name)
    }

    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
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
    struct Case {
        error: String,
        kind: String,
        chat_level_not_found: bool,
    }

    #[test]
    fn texts_are_read_as_the_vectors_say() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../tests/vectors/error_kind.json")).expect("vectors");
        for case in cases {
            let kind = Kind::of_text(&case.error);
            assert_eq!(kind.as_str(), case.kind, "{:?}", case.error);
            assert_eq!(kind == Kind::ChatNotFound, case.chat_level_not_found, "{:?}", case.error);
        }
    }
}
