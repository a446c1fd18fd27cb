//! Where a path leads when its links are followed, also one whose end is not there yet.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Links on one way; the kernel follows no more.
const MOST_LINKS: usize = 40;
/// Entries of a folder among which links are looked for.
const MOST_ENTRIES: usize = 4096;

/// `None`: that cannot be told.
pub(super) fn follow(path: &str) -> Option<String> {
    let mut ahead = steps(Path::new(path));
    let (mut place, mut links) = (PathBuf::from("/"), 0);
    while let Some(step) = ahead.pop() {
        if step == ".." {
            place.pop();
            continue;
        }
        // A pattern: the shell finds names for it, and any of them may be a link.
        if step.to_string_lossy().contains(['*', '?', '[']) && (!ahead.is_empty() || may_have_links(&place)) {
            return None;
        }
        let next = place.join(&step);
        // What is no link, or not there, is itself.
        let Ok(target) = fs::read_link(&next) else {
            place = next;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        ahead.extend(steps(&target));
    }
    place.into_os_string().into_string().ok()
}

/// The last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

fn may_have_links(folder: &Path) -> bool {
    // Where nothing can be listed, no pattern finds anything.
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut seen = 0;
    let mut entries = entries.take_while(|_| {
        seen += 1;
        seen <= MOST_ENTRIES
    });
    let link =
        entries.any(|entry| !entry.is_ok_and(|it| it.file_type().is_ok_and(|kind| !kind.is_symlink())));
    link || seen > MOST_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_as_the_kernel_does_also_to_what_is_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("ws/sub")).unwrap();
        fs::create_dir_all(root.join("plain")).unwrap();
        symlink(&root, root.join("ws/home")).unwrap();
        symlink("../new", root.join("ws/dangling")).unwrap();
        symlink("sub/../../x", root.join("ws/climbs")).unwrap();
        symlink("round", root.join("ws/round")).unwrap();
        let check = |path: &str, want: Option<&str>| {
            let found = follow(&format!("{}/{path}", root.display()));
            assert_eq!(
                found.as_deref(),
                want.map(|want| format!("{}{want}", root.display())).as_deref(),
                "{path}"
            );
        };
        check("ws/sub/file", Some("/ws/sub/file"));
        check("ws/./none//deeper", Some("/ws/none/deeper"));
        check("ws/home/config.yaml", Some("/config.yaml"));
        check("ws/home/ws/sub/../y", Some("/ws/y"));
        // Not what it looks like: the way up begins where the link leads.
        check("ws/home/plain/../z", Some("/z"));
        check("ws/dangling", Some("/new"));
        check("ws/climbs", Some("/x"));
        check("ws/round", None);
        check("ws/*", None);
        check("ws/s*/file", None);
        check("plain/*.txt", Some("/plain/*.txt"));
    }
}
