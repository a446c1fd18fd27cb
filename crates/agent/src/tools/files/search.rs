//! The `search_files` tool: lines by content, or files by name.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use rustix::fs::{Dir, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::workspace::{Workspace, display_path, kind, open_directory, open_file};
use crate::tools::registry::arguments::Count;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{CancelFlag, SessionCtx, ToolOutcome};
use petasos_runtime::clock;
use tokio::time::Instant;

const MATCHES: usize = 50;
const MOST_MATCHES: usize = 200;
const LINE: usize = 300;
/// Larger files are not searched.
const FILE: u64 = 4 << 20;
const BYTES: u64 = 256 << 20;
const ENTRIES: usize = 100_000;
const DEPTH: usize = 40;
const TIME: Duration = Duration::from_secs(10);

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "search_files",
        description: "Searches the workspace: lines whose text matches, or files whose path matches. Case is ignored when the pattern has no capitals.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Reads { default: "." },
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct SearchFilesArguments {
    /// Regular expression; for files also a glob such as *.md
    pattern: String,
    /// Search in lines (default) or in file names
    target: Option<SearchTarget>,
    /// Directory to search, default: the whole workspace; also a directory of sent files
    path: Option<String>,
    /// Maximum number of results, default 50
    #[schemars(range(max = MOST_MATCHES))]
    limit: Option<Count>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SearchTarget {
    #[default]
    Content,
    #[serde(alias = "names")]
    Files,
}

fn run(ctx: &SessionCtx, arguments: &SearchFilesArguments, cancel: &CancelFlag) -> ToolOutcome {
    let target = arguments.target.unwrap_or_default();
    let path = arguments.path.as_deref().unwrap_or(".");
    let workspace = Workspace::readable(ctx, path)?;
    let names = workspace.components(path)?;
    let mut search = Search {
        pattern: compile(&arguments.pattern, target)?,
        target,
        limit: Count::within(arguments.limit.as_ref(), "limit", MATCHES, MOST_MATCHES)?,
        found: Vec::new(),
        entries: 0,
        bytes: 0,
        until: clock::monotonic() + TIME,
        cancel,
        shown_as: &workspace.shown_as,
        incomplete: None,
    };
    let root = workspace.directory(&names)?;
    let mut path = names;
    search.walk(&root, &mut path);
    let list = if target == SearchTarget::Files { "files" } else { "matches" };
    let mut result = json!({ "total_count": search.found.len(), list: search.found });
    if let Some(reason) = search.incomplete {
        result["incomplete"] = reason.into();
    }
    Ok(result)
}

struct Search<'a> {
    pattern: Regex,
    target: SearchTarget,
    limit: usize,
    found: Vec<Value>,
    entries: usize,
    bytes: u64,
    until: Instant,
    cancel: &'a CancelFlag,
    shown_as: &'a Path,
    incomplete: Option<&'static str>,
}

impl Search<'_> {
    /// Depth first, in name order; links are not followed.
    fn walk(&mut self, directory: &OwnedFd, path: &mut Vec<OsString>) {
        for name in entries(directory) {
            self.entries += 1;
            if self.is_done() {
                return;
            }
            let Ok(Some(kind)) = kind(directory, &name) else { continue };
            path.push(name.clone());
            match kind {
                FileType::Directory if name == ".git" => {}
                FileType::Directory if path.len() > DEPTH => {
                    self.incomplete = Some("some directories lie too deep")
                }
                FileType::Directory => {
                    if let Ok(inner) = open_directory(directory, &name) {
                        self.walk(&inner, path);
                    }
                }
                FileType::RegularFile => self.file(directory, &name, path),
                _ => {}
            }
            path.pop();
        }
    }

    fn file(&mut self, directory: &OwnedFd, name: &OsStr, path: &[OsString]) {
        let name_in_root = display_path(path);
        let shown = self.shown_as.join(&name_in_root).display().to_string();
        if self.target == SearchTarget::Files {
            if self.pattern.is_match(&name_in_root) {
                self.found.push(shown.into());
            }
            return;
        }
        let Ok(file) = open_file(directory, name) else { return };
        let mut content = Vec::new();
        let Ok(size) = file.take(FILE + 1).read_to_end(&mut content) else { return };
        self.bytes += size as u64;
        if size as u64 > FILE || content[..size.min(8192)].contains(&0) {
            return;
        }
        for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let text = String::from_utf8_lossy(line);
            if !self.pattern.is_match(&text) {
                continue;
            }
            if self.is_done() {
                return;
            }
            let text: String = text.trim_end().chars().take(LINE).collect();
            self.found.push(json!({"path": shown, "line": index + 1, "content": text}));
        }
    }

    fn is_done(&mut self) -> bool {
        let reason = if self.cancel.is_set() {
            "cancelled"
        } else if self.found.len() >= self.limit {
            "there are more results: narrow the pattern or raise the limit"
        } else if self.entries > ENTRIES || self.bytes > BYTES {
            "the workspace is too large to search at once: give a path"
        } else if clock::monotonic() > self.until {
            "the search took too long: give a path"
        } else {
            return false;
        };
        self.incomplete = Some(reason);
        true
    }
}

fn entries(directory: &OwnedFd) -> Vec<OsString> {
    let Ok(listing) = Dir::read_from(directory) else { return Vec::new() };
    let mut names: Vec<OsString> = listing
        .filter_map(Result::ok)
        .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        .filter(|name| name != "." && name != "..")
        .take(ENTRIES)
        .collect();
    names.sort_unstable();
    names
}

fn compile(pattern: &str, target: SearchTarget) -> Result<Regex, String> {
    let source =
        if target == SearchTarget::Files && is_glob(pattern) { glob(pattern) } else { pattern.to_owned() };
    RegexBuilder::new(&source)
        .case_insensitive(!pattern.chars().any(char::is_uppercase))
        .size_limit(1 << 20)
        .build()
        .map_err(|_| format!("{pattern:?} is not a valid regular expression."))
}

/// Whether the pattern contains a star that repeats nothing: `*.md`, `notes/*`.
fn is_glob(pattern: &str) -> bool {
    let mut before = None;
    pattern.chars().any(|c| {
        let bare = c == '*' && !matches!(before, Some('.' | ')' | ']' | '}')) && before != Some('\\');
        before = Some(c);
        bare
    })
}

fn glob(pattern: &str) -> String {
    let mut source = String::from("(^|/)");
    for c in pattern.chars() {
        match c {
            '*' => source.push_str(".*"),
            '?' => source.push_str("[^/]"),
            c => source.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    source.push('$');
    source
}
