//! Capabilities of a channel. Code asks for capabilities instead of platform names.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Delivery;
use crate::text::Unit;

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

/// Which parts of an answer are sent as replies to the question.
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

    /// `part` starts at 0.
    pub const fn is_reply(self, part: usize) -> bool {
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
    pub max_message: usize,
    pub max_edit: usize,
    pub unit: Unit,
    /// A text at least this long may be the first part of one that the client has split: wait for the rest.
    pub split_hint: Option<usize>,
    pub dialect: Dialect,
    /// Sent messages can be edited, so answers can be streamed.
    pub edit: bool,
    /// The final edit is required even if the text is unchanged (the preview is plain, the final text is formatted).
    pub finalize: bool,
    pub typing: bool,
    pub reply_to: ReplyTo,
    pub buttons: bool,
    /// Status reactions are enabled by the owner.
    #[serde(rename = "marks")]
    pub status_reactions: bool,
    /// A thread has its own access rules: access to the chat does not imply access to every thread.
    #[serde(rename = "threads_stand_alone")]
    pub threads_are_separate: bool,
    /// Largest file in bytes; `None`: files cannot be sent.
    pub files: Option<u64>,
    /// Messages can be sent after the turn has ended.
    pub async_delivery: bool,
    /// The platform's average interval between messages to one chat.
    pub pace: Duration,
    /// Longest silence of a healthy link, with a wide margin. `None`: silence means nothing.
    pub longest_silence: Option<Duration>,
    /// Formatting instructions for the model, in one line.
    pub hint: String,
}
