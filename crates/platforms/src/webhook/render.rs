//! Splits Markdown into comments for GitHub.

use petasos_core::text::{Limits, Unit, split};

use super::{MAX_COMMENT, Webhook};
use crate::{PREFIX_RESERVE, Part};

const LIMITS: Limits = Limits::new(MAX_COMMENT - PREFIX_RESERVE, Unit::Chars);

impl Webhook {
    pub fn render(&self, text: &str) -> Vec<Part> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        split(text, &LIMITS).into_iter().map(Part::plain).collect()
    }

    /// Never sent: the capabilities rule out edits.
    pub fn preview(&self, text: &str, cursor: &str) -> String {
        let room = MAX_COMMENT.saturating_sub(Unit::Chars.len(cursor));
        format!("{}{cursor}", Unit::Chars.prefix(text, room))
    }
}
