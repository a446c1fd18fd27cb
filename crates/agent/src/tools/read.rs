//! `read_file`: numbered lines of a text file, a page at a time.

use std::io::Read as _;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::Count;
use super::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use super::workspace::{Workspace, show};
use super::{Outcome, RESULT, SessionCtx, Stop};

const LINES: usize = 500;
const MOST_LINES: usize = 2000;
/// Characters of one line.
const LINE: usize = 2000;
/// Beyond this a file is not counted to its end.
const SCAN: u64 = 256 << 20;

pub(super) fn tool() -> Definition {
    Definition {
        name: "read_file",
        description: "Reads a text file of the workspace, or one that somebody sent, as numbered lines. Long files come in pages: go on at next_offset.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Reads { default: "" },
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Path relative to the workspace, or the path of a file that somebody sent
    path: String,
    /// First line, counted from 1
    #[schemars(range(min = 1))]
    offset: Option<Count>,
    /// Number of lines, default 500
    #[schemars(range(max = MOST_LINES))]
    limit: Option<Count>,
}

fn run(ctx: &SessionCtx, arguments: &Arguments, stop: &Stop) -> Outcome {
    let workspace = Workspace::readable(ctx, &arguments.path)?;
    let names = workspace.inside(&arguments.path)?;
    let offset = Count::within(arguments.offset.as_ref(), "offset", 1, usize::MAX)?;
    let limit = Count::within(arguments.limit.as_ref(), "limit", LINES, MOST_LINES)?;
    let mut file = workspace.file(&names)?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let mut page = Page::new(offset, limit);
    let mut buffer = vec![0; 64 << 10];
    let mut scanned = 0;
    loop {
        let count = file.read(&mut buffer).map_err(|error| format!("{}: {error}", show(&names)))?;
        if count == 0 || stop.asked() {
            break;
        }
        if scanned == 0 && buffer[..count.min(8192)].contains(&0) {
            return Err(format!("{} is a binary file of {size} bytes.", show(&names)));
        }
        scanned += count as u64;
        buffer[..count].iter().for_each(|byte| page.take(*byte));
        if scanned > SCAN {
            break;
        }
    }
    page.end();
    if offset > page.number.max(1) {
        return Err(format!("{} has only {} lines.", show(&names), page.number));
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

/// The wanted lines, collected while the file goes by.
struct Page {
    offset: usize,
    limit: usize,
    content: String,
    /// Lines seen so far.
    number: usize,
    /// The first line that was left out.
    next: Option<usize>,
    /// The line now being read, no longer than needed.
    line: Vec<u8>,
    open: bool,
}

impl Page {
    fn new(offset: usize, limit: usize) -> Self {
        Self { offset, limit, content: String::new(), number: 0, next: None, line: Vec::new(), open: false }
    }

    fn take(&mut self, byte: u8) {
        self.open = true;
        if byte == b'\n' {
            self.end();
        } else if self.line.len() <= LINE * 4 {
            self.line.push(byte);
        }
    }

    fn end(&mut self) {
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
        // Quoting can double a text; the bound is on what the model gets.
        let full = self.content.len() + text.len() > RESULT && !self.content.is_empty();
        if full || self.number >= self.offset.saturating_add(self.limit) {
            self.next = Some(self.number);
            return;
        }
        self.content.push_str(&format!("{}|{text}\n", self.number));
    }
}
