//! Resolves the symbolic links of a path, also when its end does not exist yet.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The kernel's limit of links in one path.
const MAX_LINKS: usize = 40;
/// Entries of a folder that are checked for links.
const MAX_ENTRIES: usize = 4096;

/// `None`: undecidable.
pub(super) fn resolve_links(path: &str) -> Option<String> {
    let mut remaining = steps(Path::new(path));
    let mut current = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = remaining.pop() {
        if step == ".." {
            current.pop();
            continue;
        }
        // A glob may expand to a link.
        if step.to_string_lossy().contains(['*', '?', '['])
            && (!remaining.is_empty() || may_have_links(&current))
        {
            return None;
        }
        let next = current.join(&step);
        // Not a link, or missing.
        let Ok(target) = fs::read_link(&next) else {
            current = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            current = PathBuf::from("/");
        }
        remaining.extend(steps(&target));
    }
    current.into_os_string().into_string().ok()
}

/// Path components in reverse order.
fn steps(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

fn may_have_links(folder: &Path) -> bool {
    // A glob matches nothing in a folder that cannot be listed.
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut seen = 0;
    let mut entries = entries.take_while(|_| {
        seen += 1;
        seen <= MAX_ENTRIES
    });
    let link =
        entries.any(|entry| !entry.is_ok_and(|it| it.file_type().is_ok_and(|kind| !kind.is_symlink())));
    link || seen > MAX_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn resolves_links_like_the_kernel_also_to_missing_targets() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("ws/sub")).unwrap();
        fs::create_dir_all(root.join("plain")).unwrap();
        symlink(&root, root.join("ws/home")).unwrap();
        symlink("../new", root.join("ws/dangling")).unwrap();
        symlink("sub/../../x", root.join("ws/climbs")).unwrap();
        symlink("round", root.join("ws/round")).unwrap();
        let check = |path: &str, want: Option<&str>| {
            let found = resolve_links(&format!("{}/{path}", root.display()));
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
        // `..` applies to the target of the link.
        check("ws/home/plain/../z", Some("/z"));
        check("ws/dangling", Some("/new"));
        check("ws/climbs", Some("/x"));
        check("ws/round", None);
        check("ws/*", None);
        check("ws/s*/file", None);
        check("plain/*.txt", Some("/plain/*.txt"));
    }
}
