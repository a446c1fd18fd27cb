//! Damaged files, for the tests of all readers.

use std::path::Path;

pub(in crate::storage::home) const JUNK: [&[u8]; 14] = [
    b"",
    b" \n",
    b"{not valid json",
    b"{\"half\":",
    b"[1]",
    b"[]",
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"\"text\"",
    b"\xff\xfe",
    b"\0\x01\x02\x80\xc3\x28",
    b"{}",
];

/// Replaces `path` by every kind of damaged file, one after the other, and calls `read`.
pub(in crate::storage::home) fn for_each_damage(path: &Path, mut read: impl FnMut(&str)) {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).unwrap();
    }
    read("absent");
    for junk in JUNK {
        std::fs::write(path, junk).unwrap();
        read(&format!("{:?}", String::from_utf8_lossy(junk)));
        let _ = std::fs::remove_file(path);
    }
    std::fs::write(path, vec![b'['; 2 << 20]).unwrap();
    read("huge");
    let _ = std::fs::remove_file(path);
    std::os::unix::fs::symlink(path, path).unwrap();
    read("a link to itself");
    let _ = std::fs::remove_file(path);
    std::fs::create_dir(path).unwrap();
    read("a directory");
    std::fs::remove_dir(path).unwrap();
}

pub(in crate::storage::home) const NO_HOMES: [&str; 3] = ["/nonexistent/home", "/dev/null", ""];
