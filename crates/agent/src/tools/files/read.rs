//! The `read_file` tool: numbered lines of a text file, in pages.

use std::io::Read as _;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::workspace::{Workspace, display_path};
use crate::tools::registry::arguments::Count;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{CancelFlag, PAGE, SessionCtx, ToolOutcome};

const LINES: usize = 500;
const MOST_LINES: usize = 2000;
const LINE: usize = 2000;
/// Lines after this many bytes are not counted.
const SCAN: u64 = 256 << 20;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "read_file",
        description: "Reads a text file of the workspace, or a file sent in this conversation, as numbered lines. Long files come in pages: continue at next_offset.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Reads { default: "" },
        paginated: true,
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct ReadFileArguments {
    /// Path relative to the workspace, or the path of a file sent in this conversation
    path: String,
    /// First line, counted from 1
    #[schemars(range(min = 1))]
    offset: Option<Count>,
    /// Number of lines, default 500
    #[schemars(range(max = MOST_LINES))]
    limit: Option<Count>,
}

fn run(ctx: &SessionCtx, arguments: &ReadFileArguments, cancel: &CancelFlag) -> ToolOutcome {
    let workspace = Workspace::readable(ctx, &arguments.path)?;
    let names = workspace.components(&arguments.path)?;
    let offset = Count::within(arguments.offset.as_ref(), "offset", 1, usize::MAX)?;
    let limit = Count::within(arguments.limit.as_ref(), "limit", LINES, MOST_LINES)?;
    let mut file = workspace.file(&names)?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let mut page = PageReader::new(offset, limit);
    let mut buffer = vec![0; 64 << 10];
    let mut scanned = 0;
    loop {
        let count = file.read(&mut buffer).map_err(|error| format!("{}: {error}", display_path(&names)))?;
        if count == 0 || cancel.is_set() {
            break;
        }
        if scanned == 0 && buffer[..count.min(8192)].contains(&0) {
            return Err(format!("{} is a binary file of {size} bytes.", display_path(&names)));
        }
        scanned += count as u64;
        buffer[..count].iter().for_each(|byte| page.push(*byte));
        if scanned > SCAN {
            break;
        }
    }
    page.end_line();
    if offset > page.number.max(1) {
        return Err(format!("{} has only {} lines.", display_path(&names), page.number));
    }
    let mut result = json!({
        "content": page.content,
        "total_lines": page.number,
        "file_size": size,
        "truncated": page.next.is_some(),
    });
    if let Some(next) = page.next {
        result["next_offset"] = next.into();
    }
    Ok(result)
}

/// Collects the requested lines while the file is read.
struct PageReader {
    offset: usize,
    limit: usize,
    content: String,
    number: usize,
    /// The first omitted line.
    next: Option<usize>,
    /// The current line, truncated.
    line: Vec<u8>,
    open: bool,
}

impl PageReader {
    fn new(offset: usize, limit: usize) -> Self {
        Self { offset, limit, content: String::new(), number: 0, next: None, line: Vec::new(), open: false }
    }

    fn push(&mut self, byte: u8) {
        self.open = true;
        if byte == b'\n' {
            self.end_line();
        } else if self.line.len() <= LINE * 4 {
            self.line.push(byte);
        }
    }

    fn end_line(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        self.number += 1;
        let line = std::mem::take(&mut self.line);
        if self.number < self.offset || self.next.is_some() {
            return;
        }
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line));
        let text = match text.char_indices().nth(LINE) {
            Some((end, _)) => format!("{}… (line cut)", &text[..end]),
            None => text.into_owned(),
        };
        // Bounds the text; quoting it as JSON may double it.
        let full = self.content.len() + text.len() > PAGE && !self.content.is_empty();
        if full || self.number >= self.offset.saturating_add(self.limit) {
            self.next = Some(self.number);
            return;
        }
        self.content.push_str(&format!("{}|{text}\n", self.number));
    }
}
