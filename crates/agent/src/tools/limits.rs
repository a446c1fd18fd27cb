//! The owner's allowlist and denylist of tools.

use super::Toolset;

/// Prefix of hermes toolsets that stand for every tool: `hermes-cli`, `hermes-telegram` and so on.
const EVERYTHING: &str = "hermes-";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolLimits {
    /// Names of toolsets and tools; unknown names grant nothing. `None`: every tool.
    pub allowed: Option<Vec<String>>,
    /// Names of tools that are off in any case.
    pub denied: Vec<String>,
}

impl ToolLimits {
    pub(super) fn permits(&self, tool: &str, toolset: Toolset) -> bool {
        let named = |name: &String| is_all(name) || name == tool || name == toolset.name();
        let denied = self.denied.iter().any(|name| name == tool);
        !denied && self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(named))
    }

    pub(super) fn all(&self) -> bool {
        self.denied.is_empty()
            && self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|name| is_all(name)))
    }
}

pub(super) fn is_all(name: &str) -> bool {
    matches!(name, "all" | "*") || name.starts_with(EVERYTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tools;

    #[track_caller]
    fn on(allowed: Option<&[&str]>, denied: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let limits = ToolLimits { allowed: allowed.map(owned), denied: owned(denied) };
        let specs = Tools::default().limited(&limits).specs();
        specs.iter().map(|spec| spec.name.clone()).collect()
    }

    #[test]
    fn enables_only_allowed_toolsets_and_tools() {
        let all = on(None, &[]);
        let file = on(Some(&["file"]), &[]);
        assert!(!file.is_empty() && file.len() < all.len(), "{file:?} of {all:?}");
        assert!(!file.contains(&"clock".to_owned()));
        assert_eq!(on(Some(&["clock"]), &[]), ["clock"]);
        assert_eq!(on(Some(&["clock", "file"]), &["clock"]), file);
        for name in ["all", "*", "hermes-cli"] {
            assert_eq!(on(Some(&[name]), &[]), all, "{name}");
        }
    }

    #[test]
    fn unknown_names_grant_nothing() {
        assert_eq!(on(Some(&["files", "hermes", "FILE", ""]), &[]), Vec::<String>::new());
        assert_eq!(on(Some(&[]), &[]), Vec::<String>::new());
        assert!(!Tools::is_known("files") && Tools::is_known("file") && Tools::is_known("clock"));
    }
}
