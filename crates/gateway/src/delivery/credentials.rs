//! Recognises credential files by name and first bytes. They are never sent, wherever they lie.

use std::path::Path;

/// Folders that contain only credentials.
const FOLDERS: &[&str] =
    &[".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".claude", ".codex"];
const NAMES: &[&str] = &[
    ".credentials.json",
    ".dockercfg",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "application_default_credentials.json",
    "auth.json",
    "client_secret.json",
    "cookies.sqlite",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "key4.db",
    "login data",
    "logins.json",
    "oauth_creds.json",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service_account.json",
    "shadow",
    "token.json",
    "tokens.json",
    "wallet.dat",
];
const ENDINGS: &[&str] =
    &[".env", ".jks", ".kdbx", ".key", ".keystore", ".ovpn", ".p12", ".pfx", ".ppk", ".tfstate"];
/// SSH private keys; public keys end in `.pub`.
const KEYS: &[&str] =
    &["id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_rsa", "identity"];
/// Suffixes of `.env.` that mark a template without values.
const EXAMPLES: &[&str] = &["example", "sample", "template", "dist"];

/// `path` must be resolved.
pub(super) fn has_credential_name(path: &Path) -> bool {
    let lower = |part: &std::ffi::OsStr| part.to_string_lossy().to_lowercase();
    let in_folder =
        path.parent().is_some_and(|parent| parent.iter().any(|part| FOLDERS.contains(&lower(part).as_str())));
    let name = path.file_name().map(lower).unwrap_or_default();
    let environment = match name.strip_prefix(".env") {
        Some("") => true,
        Some(rest) => rest.strip_prefix('.').is_some_and(|kind| !EXAMPLES.contains(&kind)),
        None => false,
    };
    let name = name.as_str();
    in_folder
        || environment
        || NAMES.contains(&name)
        || KEYS.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

pub(super) fn starts_like_private_key(start: &[u8]) -> bool {
    let start = String::from_utf8_lossy(start);
    start.contains("PRIVATE KEY-----")
        || start.contains("PRIVATE KEY BLOCK-----")
        || start.starts_with("PuTTY-User-Key-File")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_credentials_by_name() {
        for path in [
            "/home/a/.claude/.credentials.json",
            "/home/a/.codex/auth.json",
            "/home/a/project/.env",
            "/home/a/project/.ENV",
            "/home/a/project/.env.production",
            "/home/a/project/prod.env",
            "/x/.ssh/config",
            "/x/backup/id_rsa",
            "/x/server.key",
            "/x/.NetRC",
        ] {
            assert!(has_credential_name(Path::new(path)), "{path}");
        }
        for path in [
            "/x/report.pdf",
            "/x/.env.example",
            "/x/id_rsa.pub",
            "/x/environment.txt",
            "/x/keys.md",
            "/ssh/a",
        ] {
            assert!(!has_credential_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn recognises_private_keys_by_content() {
        assert!(starts_like_private_key(b"-----BEGIN OPENSSH PRIVATE KEY-----\nabc"));
        assert!(starts_like_private_key(b"-----BEGIN PGP PRIVATE KEY BLOCK-----"));
        assert!(!starts_like_private_key(b"-----BEGIN CERTIFICATE-----"));
        assert!(!starts_like_private_key(b"\xff\xd8\xff"));
    }
}
