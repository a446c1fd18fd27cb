//! Text for a comment on GitHub: Markdown as it is, in parts that GitHub takes.

use petasos_core::text::{Limits, Unit, split};

use super::{MAX_COMMENT, Webhook};
use crate::{MARK_ROOM, Part};

const LIMITS: Limits = Limits::new(MAX_COMMENT - MARK_ROOM, Unit::Chars);

impl Webhook {
    pub fn render(&self, text: &str) -> Vec<Part> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        split(text, &LIMITS).into_iter().map(Part::plain).collect()
    }

    /// Nothing is shown before it is whole; this is for whoever asks all the same.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        let room = MAX_COMMENT.saturating_sub(Unit::Chars.len(cursor));
        format!("{}{cursor}", Unit::Chars.prefix(text, room))
    }
}
