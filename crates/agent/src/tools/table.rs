//! The table of tools. A new tool is a module and a line here.

use std::sync::LazyLock;

use super::definition::Definition;
use super::errand::{cronjob, send_message, session_search, todo, web_extract};
use super::{clarify, clock, delegate, patch, read, remember, search, write};
use crate::terminal;

/// Every tool, on or off, in the order in which models see them.
pub(super) static TABLE: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    vec![
        read::tool(),
        write::tool(),
        patch::tool(),
        search::tool(),
        clock::tool(),
        remember::tool(),
        todo::tool(),
        session_search::tool(),
        web_extract::tool(),
        send_message::tool(),
        cronjob::tool(),
        clarify::tool(),
        terminal::tool(),
        terminal::process::tool(),
        delegate::tool(),
    ]
});
