//! The table of tools. A new tool needs a module and a line here.

use std::sync::LazyLock;

use super::definition::Definition;
use crate::terminal;
use crate::tools::files::{patch, read, search, write};
use crate::tools::gateway::{cronjob, send_message, session_search, todo, web_extract};
use crate::tools::questions::clarify;
use crate::tools::{clock, delegate, memory};

/// Every tool, enabled or not, in the order that models see.
pub(in crate::tools) static TABLE: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    vec![
        read::tool(),
        write::tool(),
        patch::tool(),
        search::tool(),
        clock::tool(),
        memory::tool(),
        todo::tool(),
        session_search::tool(),
        web_extract::tool(),
        send_message::tool(),
        cronjob::tool(),
        clarify::tool(),
        terminal::tool(),
        terminal::process_tool(),
        delegate::tool(),
    ]
});

/// The tool with this name, enabled or not.
pub(in crate::tools) fn find(name: &str) -> Option<&'static Definition> {
    TABLE.iter().find(|tool| tool.name == name)
}
