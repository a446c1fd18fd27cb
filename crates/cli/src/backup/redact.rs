//! Removes credentials from a copied configuration.

use std::io::{self, ErrorKind};
use std::path::Path;

use petasos_core::credentials;
use serde_json::Value;

/// Rewrites the file without credentials, as JSON, which is YAML without comments. A file that cannot be
/// parsed is removed, because its content is unknown.
pub(super) fn config(path: &Path) -> io::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Ok(mut value) = serde_saphyr::from_str::<Value>(&text) else {
        return std::fs::remove_file(path);
    };
    let before = value.clone();
    credentials::visit(&mut value, &mut |secret| *secret = Value::Null);
    if value == before && !mentions_credential_in_comment(&text) {
        return Ok(());
    }
    super::files::write(path, &serde_json::to_vec_pretty(&value)?)
}

/// A commented-out setting still contains its value.
fn mentions_credential_in_comment(text: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split_once('#'))
        .any(|(_, comment)| credentials::is_secret_name(comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        config(&path).unwrap();
        let left: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(left, serde_saphyr::from_str::<Value>(want).unwrap());
    }

    #[test]
    fn removes_credentials_at_any_depth() {
        check("a: 1 # kept\n", "a: 1");
        check("telegram: {token: abc, home: '7'}", "telegram: {token: null, home: '7'}");
        check("mcp: {one: {env: {A: b}, command: x}}", "mcp: {one: {env: null, command: x}}");
        check("keys: {mine: {key: abc, scopes: [read]}}", "keys: {mine: {key: null, scopes: [read]}}");
        check("proxy: 'http://me:pass@host'", "proxy: null");
    }

    #[test]
    fn removes_comments_that_may_hold_a_credential() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, "a: 1\n# token: abc\n").unwrap();
        config(&path).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("abc"));
    }
}
