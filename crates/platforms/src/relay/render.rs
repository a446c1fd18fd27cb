//! Splits text into parts of the connector's size. Markdown passes unchanged, unless the platform wants plain text.

use petasos_core::capability::Dialect;
use petasos_core::text::{Limits, split};

use super::Relay;
use crate::{PREFIX_RESERVE, Part, markdown};

impl Relay {
    pub fn render(&self, text: &str) -> Vec<Part> {
        let capabilities = self.capabilities();
        let plain = match capabilities.dialect {
            Dialect::Plain => Some(markdown::plain(&markdown::parse(&markdown::without_tables(text)))),
            Dialect::Markdown | Dialect::Discord | Dialect::MarkdownV2 | Dialect::Mrkdwn | Dialect::Html => {
                None
            }
        };
        // If only markup remains, the source is sent.
        let said = plain.filter(|plain| !plain.trim().is_empty());
        let said = said.as_deref().unwrap_or(text);
        if said.trim().is_empty() {
            return Vec::new();
        }
        let limits = Limits::new(capabilities.max_message - PREFIX_RESERVE, capabilities.unit);
        split(said, &limits).into_iter().map(Part::plain).collect()
    }

    pub fn preview(&self, text: &str, cursor: &str) -> String {
        let capabilities = self.capabilities();
        let room = capabilities.max_edit.saturating_sub(capabilities.unit.len(cursor));
        format!("{}{cursor}", capabilities.unit.prefix(text, room))
    }
}
