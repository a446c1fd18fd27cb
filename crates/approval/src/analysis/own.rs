//! What is the gateway's own: everything in its home but the workspace, by whatever way a path leads there.

use alloc::format;
use alloc::string::String;

use super::path::resolve;
use super::text::{has_hole, matches};
use crate::Context;

/// Whether changing what a path names changes the gateway's settings or data.
pub(crate) fn is_own(path: &str, cwd: &str, context: &Context) -> bool {
    // Relative to nobody knows where.
    let Some(written) = resolve(path, cwd) else { return false };
    let home = Ground::of(context.gateway_home, context.workspace);
    if home.guards(&written) || (home.holds(&written) && may_climb(path)) {
        return true;
    }
    let Some(follow) = context.follow else { return false };
    let whole = if path.starts_with('/') { String::from(path) } else { format!("{cwd}/{path}") };
    let there = |path: &str| follow(path).unwrap_or_default();
    match follow(&whole) {
        Some(real) => Ground::of(&there(context.gateway_home), &there(context.workspace)).guards(&real),
        None => home.holds(&written),
    }
}

/// Whether a link to this leads to what is the gateway's own, at once or further on. `link`: where it lies; what it says
/// is relative to that.
pub(crate) fn leads_home(target: &str, link: &str, cwd: &str, context: &Context) -> bool {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    // A folder gets the link, anything else becomes it; only the disk knows which.
    let from = ["", folder, link].map(|below| resolve(&format!("./{below}"), cwd).unwrap_or_default());
    from.iter().any(|from| {
        let above = resolve(target, from).is_some_and(|place| is_within(context.gateway_home, &place));
        above || is_own(target, from, context)
    })
}

/// The home, and what in it is the agent's.
struct Ground {
    home: String,
    workspace: Option<String>,
}

impl Ground {
    fn of(home: &str, workspace: &str) -> Self {
        let home = resolve(home, "").unwrap_or_default();
        let inside = |workspace: &String| *workspace != home && is_within(workspace, &home);
        Self { workspace: resolve(workspace, "").filter(inside), home }
    }

    fn holds(&self, path: &str) -> bool {
        is_within(path, &self.home)
    }

    fn guards(&self, path: &str) -> bool {
        self.holds(path) && !self.workspace.as_ref().is_some_and(|workspace| is_within(path, workspace))
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    !path.is_empty()
        && !folder.is_empty()
        && path.strip_prefix(folder.trim_end_matches('/')).is_some_and(below)
}

/// Some part of it may turn out to be `..`.
fn may_climb(path: &str) -> bool {
    let climbs = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']) && matches(part, "..");
    has_hole(path) || path.split('/').any(climbs)
}
