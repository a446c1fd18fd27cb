//! Which calls of one answer may run at the same time.
//!
//! They are put into groups, in their order. Whoever may touch anything runs alone; the others share a group unless one
//! of them writes what another reads or writes.

use std::ffi::OsString;
use std::path::Path;

use petasos_core::transcript::ToolCall;
use serde_json::Value;

use super::Tools;
use super::arguments::{Object, object};
use super::workspace::inside;
use crate::mcp::PREFIX;

/// What a call may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touch {
    /// Nothing that another call could mind.
    Nothing,
    /// The file or the folder of the workspace with this path.
    Reads(Vec<OsString>),
    Writes(Vec<OsString>),
    /// Anything.
    All,
}

impl Touch {
    pub(super) fn reads(workspace: &Path, arguments: &Object, default: &str) -> Self {
        path(workspace, arguments, default).map_or(Self::Nothing, Self::Reads)
    }

    pub(super) fn writes(workspace: &Path, arguments: &Object) -> Self {
        path(workspace, arguments, "").map_or(Self::Nothing, Self::Writes)
    }

    fn minds(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::Nothing, _) | (_, Self::Nothing) | (Self::Reads(_), Self::Reads(_)) => false,
            (Self::Writes(one), Self::Reads(other) | Self::Writes(other))
            | (Self::Reads(one), Self::Writes(other)) => one.starts_with(other) || other.starts_with(one),
        }
    }
}

/// `None`: there is no such path in the workspace, so nothing of it is touched. No tool follows links, so the names say
/// where a path leads.
fn path(workspace: &Path, arguments: &Object, default: &str) -> Option<Vec<OsString>> {
    let path = match arguments.get("path") {
        None | Some(Value::Null) => default,
        Some(path) => path.as_str()?,
    };
    inside(workspace, path).ok()
}

impl Tools {
    /// The sizes of the groups, in order.
    pub fn groups(&self, workspace: &Path, calls: &[ToolCall]) -> Vec<u32> {
        let mut sizes = Vec::new();
        let mut group: Vec<Touch> = Vec::new();
        for call in calls {
            let touch = self.touch(workspace, call);
            if group.iter().any(|other| touch.minds(other)) {
                sizes.push(u32::try_from(group.len()).unwrap_or(u32::MAX));
                group.clear();
            }
            group.push(touch);
        }
        sizes.push(u32::try_from(group.len()).unwrap_or(u32::MAX));
        sizes
    }

    fn touch(&self, workspace: &Path, call: &ToolCall) -> Touch {
        match (self.find(&call.name), object(&call.arguments)) {
            (Some(tool), Some(arguments)) => tool.touch(workspace, &arguments),
            (None, _) if call.name.starts_with(PREFIX) && self.servers().parallel(&call.name) => {
                Touch::Nothing
            }
            // Nobody knows what it touches.
            (None, _) if call.name.starts_with(PREFIX) => Touch::All,
            // It is answered with an error.
            (None, _) | (_, None) => Touch::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Service;
    use super::*;

    #[track_caller]
    fn check(calls: &[(&str, Value)], want: &[u32]) {
        let tools = Tools::default().and(Service::Terminal);
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
    fn reads_share_a_group_and_a_command_has_its_own() {
        let terminal = ("terminal", json!({"command": "ls"}));
        check(&[read("a"), read("a"), terminal.clone()], &[2, 1]);
        check(&[terminal.clone(), read("a"), ("clock", json!({})), terminal], &[1, 2, 1]);
        check(&[read("a"), ("no_such_tool", json!({})), read("b")], &[3]);
    }

    #[test]
    fn writes_share_a_group_only_with_what_they_do_not_touch() {
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
