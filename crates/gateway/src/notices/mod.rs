//! Every text that the gateway itself sends to a chat: one constant or function per text, grouped by topic.
//!
//! A text says what happened and what to do next. Texts that a decision of `petasos_core` carries are in
//! [`petasos_core::notices`]. Key phrases that other programs and the specification rely on are quoted in the comments; keep them
//! when you change or translate a text.

pub(crate) mod access;
pub(crate) mod commands;
pub(crate) mod files;
pub(crate) mod links;
pub(crate) mod model;
pub(crate) mod questions;
pub(crate) mod sessions;
pub(crate) mod storage;
pub(crate) mod turns;
pub(crate) mod work;

/// `1 message`, `2 messages`.
fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_use_singular_and_plural() {
        assert_eq!(
            [0, 1, 2].map(|number| count(number, "message")),
            ["0 messages", "1 message", "2 messages"]
        );
    }
}
