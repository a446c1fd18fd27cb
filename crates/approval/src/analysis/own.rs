//! The protected paths of the gateway: its home except the workspace, with links resolved.

use alloc::format;
use alloc::string::String;

use super::path::resolve;
use super::text::{has_hole, matches};
use crate::Context;

/// Whether a change at this path affects the gateway's settings or data.
pub(crate) fn is_own(path: &str, cwd: &str, context: &Context) -> bool {
    // Relative to an unknown directory.
    let Some(written) = resolve(path, cwd) else { return false };
    let home = ProtectedArea::of(context.gateway_home, context.workspace);
    if home.protects(&written) || (home.holds(&written) && may_ascend(path)) {
        return true;
    }
    let Some(follow) = context.resolve_links else { return false };
    let whole = if path.starts_with('/') { String::from(path) } else { format!("{cwd}/{path}") };
    let there = |path: &str| follow(path).unwrap_or_default();
    match follow(&whole) {
        Some(real) => {
            ProtectedArea::of(&there(context.gateway_home), &there(context.workspace)).protects(&real)
        }
        None => home.holds(&written),
    }
}

/// Whether a link with this target leads to a protected path, directly or indirectly. `link`: the path of the link, to
/// which the target is relative.
pub(crate) fn leads_home(target: &str, link: &str, cwd: &str, context: &Context) -> bool {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    // If `link` is a folder, the link is created in it; only the disk knows.
    let from = ["", folder, link].map(|below| resolve(&format!("./{below}"), cwd).unwrap_or_default());
    from.iter().any(|from| {
        let above = resolve(target, from).is_some_and(|path| is_within(context.gateway_home, &path));
        above || is_own(target, from, context)
    })
}

struct ProtectedArea {
    home: String,
    workspace: Option<String>,
}

impl ProtectedArea {
    fn of(home: &str, workspace: &str) -> Self {
        let home = resolve(home, "").unwrap_or_default();
        let inside = |workspace: &String| *workspace != home && is_within(workspace, &home);
        Self { workspace: resolve(workspace, "").filter(inside), home }
    }

    fn holds(&self, path: &str) -> bool {
        is_within(path, &self.home)
    }

    fn protects(&self, path: &str) -> bool {
        self.holds(path) && !self.workspace.as_ref().is_some_and(|workspace| is_within(path, workspace))
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    !path.is_empty()
        && !folder.is_empty()
        && path.strip_prefix(folder.trim_end_matches('/')).is_some_and(below)
}

/// Whether some part may expand to `..`.
fn may_ascend(path: &str) -> bool {
    let climbs = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']) && matches(part, "..");
    has_hole(path) || path.split('/').any(climbs)
}
