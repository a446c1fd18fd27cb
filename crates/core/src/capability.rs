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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub label: String,
    pub delivery: Delivery,
    /// Longest message, in `unit`s.
    pub max_message: usize,
    pub unit: Unit,
    /// A text at least this long may be the first half of one the client has split; wait for the rest.
    pub split_hint: Option<usize>,
    pub dialect: Dialect,
    /// A sent message can be replaced, so an answer can be shown while it grows.
    pub edit: bool,
    /// The last edit must be made even if the text is the same (the preview was plain, the final is marked up).
    pub finalize: bool,
    pub typing: bool,
    pub buttons: bool,
    /// A later event can be pushed after the turn has ended.
    pub async_delivery: bool,
    /// How long the platform wants between two messages to one chat, on average.
    pub pace: Duration,
    /// One line for the model about how to write here.
    pub hint: String,
}
