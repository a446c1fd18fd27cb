//! What a channel can do: one descriptor per platform, asked by everyone, instead of platform names.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Delivery;
use crate::text::Unit;

/// Which markup the platform's clients show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    Plain,
    Markdown,
    MarkdownV2,
    Discord,
    Mrkdwn,
    Html,
}

/// Which parts of an answer are shown as answers to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyTo {
    Off,
    #[default]
    First,
    All,
}

impl ReplyTo {
    pub fn parse(word: &str) -> Self {
        match word {
            "off" => Self::Off,
            "all" => Self::All,
            _first => Self::First,
        }
    }

    /// Parts are counted from 0.
    pub const fn quotes(self, part: usize) -> bool {
        match self {
            Self::Off => false,
            Self::First => part == 0,
            Self::All => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub label: String,
    pub delivery: Delivery,
    /// Longest message, in `unit`s.
    pub max_message: usize,
    /// Longest text that a sent message can be changed to.
    pub max_edit: usize,
    pub unit: Unit,
    /// A text at least this long may be the first half of one the client has split; wait for the rest.
    pub split_hint: Option<usize>,
    pub dialect: Dialect,
    /// A sent message can be replaced, so an answer can be shown while it grows.
    pub edit: bool,
    /// The last edit must be made even if the text is the same (the preview was plain, the final is marked up).
    pub finalize: bool,
    pub typing: bool,
    /// What the owner wants.
    pub reply_to: ReplyTo,
    pub buttons: bool,
    /// Messages get marks: the owner wants them.
    pub marks: bool,
    /// Threads are places of their own: whoever may write to a chat need not be allowed into every thread that they can
    /// name.
    pub threads_stand_alone: bool,
    /// Largest file that can be sent, in bytes; `None`: none can.
    pub files: Option<u64>,
    /// A later event can be pushed after the turn has ended.
    pub async_delivery: bool,
    /// How long the platform wants between two messages to one chat, on average.
    pub pace: Duration,
    /// A healthy link is never silent for longer, by a wide margin. `None`: its silence says nothing.
    pub longest_silence: Option<Duration>,
    /// One line for the model about how to write here.
    pub hint: String,
}
