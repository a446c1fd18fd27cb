//! Groups the tool calls of one response for concurrent execution.
//!
//! Groups keep the order of the calls. A call that may access anything runs alone; other calls share a group
//! unless one writes what another reads or writes.

use std::ffi::OsString;
use std::path::Path;

use petasos_core::transcript::ToolCall;
use serde_json::Value;

use super::Tools;
use super::files::workspace::components;
use crate::mcp::PREFIX;
use crate::tools::registry::arguments::{Object, parse_object};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResourceAccess {
    /// Nothing that conflicts with another call.
    Nothing,
    Reads(Vec<OsString>),
    Writes(Vec<OsString>),
    All,
}

impl ResourceAccess {
    pub(super) fn reads(workspace: &Path, arguments: &Object, default: &str) -> Self {
        path(workspace, arguments, default).map_or(Self::Nothing, Self::Reads)
    }

    pub(super) fn writes(workspace: &Path, arguments: &Object) -> Self {
        path(workspace, arguments, "").map_or(Self::Nothing, Self::Writes)
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::Nothing, _) | (_, Self::Nothing) | (Self::Reads(_), Self::Reads(_)) => false,
            (Self::Writes(one), Self::Reads(other) | Self::Writes(other))
            | (Self::Reads(one), Self::Writes(other)) => one.starts_with(other) || other.starts_with(one),
        }
    }
}

/// `None`: the path is not in the workspace, so nothing of it is touched. No tool follows links, so names
/// identify files.
fn path(workspace: &Path, arguments: &Object, default: &str) -> Option<Vec<OsString>> {
    let path = match arguments.get("path") {
        None | Some(Value::Null) => default,
        Some(path) => path.as_str()?,
    };
    components(workspace, path).ok()
}

impl Tools {
    pub fn groups(&self, workspace: &Path, calls: &[ToolCall]) -> Vec<u32> {
        let mut sizes = Vec::new();
        let mut group: Vec<ResourceAccess> = Vec::new();
        for call in calls {
            let access = self.access(workspace, call);
            if group.iter().any(|other| access.conflicts_with(other)) {
                sizes.push(u32::try_from(group.len()).unwrap_or(u32::MAX));
                group.clear();
            }
            group.push(access);
        }
        sizes.push(u32::try_from(group.len()).unwrap_or(u32::MAX));
        sizes
    }

    fn access(&self, workspace: &Path, call: &ToolCall) -> ResourceAccess {
        match (self.find(&call.name), parse_object(&call.arguments)) {
            (Some(tool), Some(arguments)) => tool.access(workspace, &arguments),
            (None, _) if call.name.starts_with(PREFIX) && self.servers().parallel(&call.name) => {
                ResourceAccess::Nothing
            }
            // Its effects are unknown.
            (None, _) if call.name.starts_with(PREFIX) => ResourceAccess::All,
            // The call fails without running.
            (None, _) | (_, None) => ResourceAccess::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::registry::definition::Service;

    #[track_caller]
    fn check(calls: &[(&str, Value)], want: &[u32]) {
        let tools = Tools::default().enable(Service::Terminal);
        let calls: Vec<_> = calls
            .iter()
            .map(|(name, arguments)| ToolCall {
                id: "c".into(),
                name: (*name).into(),
                arguments: arguments.to_string(),
            })
            .collect();
        assert_eq!(tools.groups(Path::new("/w"), &calls), want, "{calls:?}");
    }

    fn read(path: &str) -> (&'static str, Value) {
        ("read_file", json!({ "path": path }))
    }

    fn write(path: &str) -> (&'static str, Value) {
        ("write_file", json!({"path": path, "content": "x"}))
    }

    #[test]
    fn reads_share_a_group_and_commands_run_alone() {
        let terminal = ("terminal", json!({"command": "ls"}));
        check(&[read("a"), read("a"), terminal.clone()], &[2, 1]);
        check(&[terminal.clone(), read("a"), ("clock", json!({})), terminal], &[1, 2, 1]);
        check(&[read("a"), ("no_such_tool", json!({})), read("b")], &[3]);
    }

    #[test]
    fn conflicting_writes_run_in_separate_groups() {
        check(&[write("a"), write("b"), read("c")], &[3]);
        check(&[write("a"), read("./x/../a")], &[1, 1]);
        check(&[write("/w/a"), write("a")], &[1, 1]);
        check(&[read("b"), write("a/b"), write("a/c"), read("a/b")], &[3, 1]);
        check(&[write("a/b"), ("search_files", json!({"pattern": "x"}))], &[1, 1]);
        check(&[write("a/b"), ("search_files", json!({"pattern": "x", "path": "c"}))], &[2]);
        check(&[write("ab"), read("a")], &[2]);
        check(&[write("../x"), read("/etc/passwd")], &[2]);
    }
}
