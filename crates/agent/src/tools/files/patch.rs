//! The `patch` tool: replaces a text, or applies a unified diff to several files.
//!
//! All changes are computed before the first write, so a patch that does not fit changes nothing. Each file
//! is replaced atomically. A crash in between leaves the first files changed, and the model is told that the
//! effect is unknown.

use std::ffi::OsString;
use std::io::Read as _;

use rustix::fs::AtFlags;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::diff::{self, FileEdit};
use super::workspace::{Workspace, describe_errno, display_path};
use super::write;
use crate::tools::registry::arguments::{flag, required};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{CancelFlag, SessionCtx, ToolOutcome};

const MAX_DIFF: usize = 8000;
const MAX_FILES: usize = 50;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "patch",
        description: "Changes parts of text files of the workspace: replaces one text by another, or applies a unified diff. If any part does not match, nothing is changed.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct PatchArguments {
    /// File of the workspace in which old_string is replaced
    path: Option<String>,
    /// Exact text from the file, with enough surrounding text to occur only once
    old_string: Option<String>,
    /// Text that replaces it; empty to remove it
    new_string: Option<String>,
    /// Replace every occurrence
    #[serde(default, deserialize_with = "flag")]
    replace_all: Option<bool>,
    /// Instead of the above: a unified diff (---, +++, @@) over one or more files; /dev/null creates or deletes one
    patch: Option<String>,
}

/// A file before and after the change; `None`: absent.
struct FileChange {
    names: Vec<OsString>,
    before: Option<String>,
    after: Option<String>,
}

fn run(ctx: &SessionCtx, arguments: &PatchArguments, cancel: &CancelFlag) -> ToolOutcome {
    let workspace = Workspace::open(&ctx.workspace)?;
    let changes = match arguments.patch.as_deref().filter(|patch| !patch.trim().is_empty()) {
        Some(patch) => by_diff(&workspace, patch)?,
        None => vec![by_text(&workspace, arguments)?],
    };
    let mut shown = String::new();
    let mut files = Vec::new();
    for change in &changes {
        let path = display_path(&change.names);
        shown.push_str(&diff::format_diff(&path, change.before.as_deref(), change.after.as_deref()));
        files.push(path);
    }
    for change in &changes {
        if cancel.is_set() {
            return Err("Cancelled; what was not written yet stays as it was.".to_owned());
        }
        write_change(&workspace, change, cancel)?;
    }
    let shown = match shown.char_indices().nth(MAX_DIFF) {
        Some((end, _)) => format!("{}\n… (cut)", &shown[..end]),
        None => shown,
    };
    Ok(json!({"success": true, "files_modified": files, "diff": shown}))
}

fn by_text(workspace: &Workspace, arguments: &PatchArguments) -> Result<FileChange, String> {
    let names = workspace.components(required(&arguments.path, "path")?)?;
    let old = required(&arguments.old_string, "old_string")?;
    let new = required(&arguments.new_string, "new_string")?;
    if old.is_empty() {
        return Err("old_string is empty. Use write_file to make a file.".to_owned());
    }
    if old == new {
        return Err("old_string and new_string are the same: there is nothing to change.".to_owned());
    }
    let before =
        read(workspace, &names)?.ok_or_else(|| format!("{} does not exist.", display_path(&names)))?;
    // Text with other line endings matches as well.
    let crlf = !before.contains(old) && before.contains("\r\n") && !old.contains("\r\n");
    let (old, new) = if crlf {
        (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"))
    } else {
        (old.to_owned(), new.to_owned())
    };
    let all = arguments.replace_all.unwrap_or_default();
    let after = match before.matches(old.as_str()).count() {
        0 => return Err(missing(&names, &before, &old)),
        1 => before.replacen(old.as_str(), &new, 1),
        _ if all => before.replace(old.as_str(), &new),
        many => {
            return Err(format!(
                "old_string occurs {many} times in {}. Include more of the surrounding text, or set replace_all.",
                display_path(&names)
            ));
        }
    };
    Ok(FileChange { names, before: Some(before), after: Some(after) })
}

fn missing(names: &[OsString], text: &str, old: &str) -> String {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let near = text.lines().position(|line| !first.is_empty() && line.contains(first));
    let hint = match near {
        Some(at) => format!(
            "Its first line occurs in line {}: read the file again and copy the text exactly.",
            at + 1
        ),
        None => "Read the file again: it may have changed.".to_owned(),
    };
    format!("old_string does not occur in {}. Nothing was changed. {hint}", display_path(names))
}

fn by_diff(workspace: &Workspace, patch: &str) -> Result<Vec<FileChange>, String> {
    let edits = diff::parse(patch)?;
    if edits.len() > MAX_FILES {
        return Err(format!("A patch may change {MAX_FILES} files at once."));
    }
    let mut changes: Vec<FileChange> = Vec::new();
    for FileEdit { from, to, hunks } in edits {
        let Some(path) = to.as_deref().or(from.as_deref()) else {
            return Err("A file of the patch has no name.".to_owned());
        };
        if from.is_some() && to.is_some() && from != to {
            return Err(format!(
                "{path}: a patch cannot rename files. Write the new one and remove the old."
            ));
        }
        let names = workspace.components(path)?;
        if changes.iter().any(|change| change.names == names) {
            return Err(format!("{path} occurs twice in the patch."));
        }
        let before = read(workspace, &names)?;
        let after = match (&from, &to, &before) {
            (None, _, Some(_)) => return Err(format!("{path} exists already. Nothing was changed.")),
            (Some(_), _, None) => return Err(format!("{path} does not exist. Nothing was changed.")),
            (_, _, before) => diff::apply(before.as_deref().unwrap_or_default(), &hunks)
                .map_err(|why| format!("{path}: {why} Nothing was changed."))?,
        };
        if to.is_none() && !after.is_empty() {
            return Err(format!(
                "{path}: the patch deletes the file but does not remove all of its lines. Nothing was changed."
            ));
        }
        changes.push(FileChange { names, before, after: to.map(|_| after) });
    }
    Ok(changes)
}

/// `None` if the file does not exist.
fn read(workspace: &Workspace, names: &[OsString]) -> Result<Option<String>, String> {
    let missing = |why: &String| why.ends_with("does not exist.");
    let mut file = match workspace.file(names) {
        Ok(file) => file,
        Err(why) if missing(&why) => return Ok(None),
        Err(why) => return Err(why),
    };
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > write::MAX_BYTES as u64 {
        return Err(format!("{} is larger than {} bytes.", display_path(names), write::MAX_BYTES));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(|error| format!("{}: {error}", display_path(names)))?;
    String::from_utf8(text).map(Some).map_err(|_| format!("{} is not a text file.", display_path(names)))
}

fn write_change(workspace: &Workspace, change: &FileChange, cancel: &CancelFlag) -> Result<(), String> {
    let Some((name, parents)) = change.names.split_last() else {
        return Err("This is the workspace directory itself, not a file.".to_owned());
    };
    let Some(after) = &change.after else {
        let parent = workspace.directory(parents)?;
        return rustix::fs::unlinkat(&parent, name, AtFlags::empty())
            .map_err(|error| describe_errno(error, &change.names));
    };
    let (parent, _made) = workspace.make_directory(parents)?;
    match write::replace(&parent, name, after, cancel) {
        Ok(true) => Ok(()),
        Ok(false) => Err("Cancelled; what was not written yet stays as it was.".to_owned()),
        Err(error) => Err(format!("{}: {error}", display_path(&change.names))),
    }
}
