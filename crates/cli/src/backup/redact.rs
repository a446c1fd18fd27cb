//! Removes credentials from a copied configuration.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde_json::Value;

/// Words in the names of settings that hold a credential.
const SECRET_WORDS: [&str; 9] =
    ["token", "secret", "password", "passwd", "key", "credential", "authorization", "cookie", "webhook_url"];
/// Sections whose values are all treated as credentials.
const SECRET_SECTIONS: [&str; 2] = ["env", "headers"];

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
    redact(&mut value);
    if value == before && !mentions_credential_in_comment(&text) {
        return Ok(());
    }
    super::files::write(path, &serde_json::to_vec_pretty(&value)?)
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.to_lowercase();
                let is_section = SECRET_SECTIONS.contains(&name.as_str());
                let named = SECRET_WORDS.iter().any(|word| name.contains(word));
                if is_section || (named && !field.is_object()) {
                    *field = Value::Null;
                } else {
                    redact(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) if text.contains("://") && text.contains('@') => *value = Value::Null,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A commented-out setting still contains its value.
fn mentions_credential_in_comment(text: &str) -> bool {
    let comments =
        text.lines().filter_map(|line| line.split_once('#')).map(|(_, comment)| comment.to_lowercase());
    comments.into_iter().any(|comment| SECRET_WORDS.iter().any(|word| comment.contains(word)))
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
