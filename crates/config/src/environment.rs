//! Environment variables of the process, then those of secret stores, then those of `.env` in the home.
//!
//! Only the first are in the process environment, so that child processes do not inherit the others.

use std::collections::BTreeMap;
use std::path::Path;

use petasos_core::credentials;

use crate::secrets::Variables;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSource {
    Process,
    /// A systemd credential.
    Credential,
    /// Printed by a command of `secrets.commands`.
    Command,
    DotEnv,
}

#[derive(Debug, Default, Clone)]
pub struct Environment {
    process: BTreeMap<String, String>,
    stored: Variables,
    file: BTreeMap<String, String>,
}

/// A line of `.env` that is no assignment. It may hold a secret, so only its number is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DotenvError {
    pub line: usize,
}

impl Environment {
    pub fn new(
        process: impl IntoIterator<Item = (String, String)>,
        dotenv: &str,
    ) -> Result<Self, DotenvError> {
        let stored = Variables::new();
        Ok(Self { process: process.into_iter().collect(), stored, file: parse(dotenv)? })
    }

    pub(crate) fn with_stored(self, stored: Variables) -> Self {
        Self { stored, ..self }
    }

    /// Variables of this process that are valid UTF-8.
    pub fn of_process() -> impl Iterator<Item = (String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
    }

    /// A blank variable counts as unset.
    pub fn get(&self, name: &str) -> Option<(&str, VariableSource)> {
        let set =
            |vars: &'_ BTreeMap<String, String>| vars.contains_key(name) && !vars[name].trim().is_empty();
        if set(&self.process) {
            return Some((self.process[name].trim(), VariableSource::Process));
        }
        if let Some((value, source)) = self.stored.get(name).filter(|(value, _)| !value.trim().is_empty()) {
            return Some((value.trim(), *source));
        }
        set(&self.file).then(|| (self.file[name].trim(), VariableSource::DotEnv))
    }
}

impl Environment {
    /// Values that may be secret: all of secret stores, others by the name of their variable or as part of a URL.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let named = self.process.iter().chain(&self.file);
        let guessed = named.flat_map(|(name, value)| {
            let secret = credentials::is_secret_name(name) && is_secret_value(value);
            secret.then_some(value.as_str()).into_iter().chain(credentials::url_secrets(value))
        });
        self.stored.values().map(|(value, _)| value.as_str()).chain(guessed)
    }
}

/// Numbers (`MAX_TOKENS`) and existing files (`SSH_KEY_PATH`) are no secrets.
fn is_secret_value(value: &str) -> bool {
    let number = value.bytes().all(|byte| byte.is_ascii_digit());
    let file = value.starts_with('/') && Path::new(value).exists();
    !number && !file
}

fn parse(dotenv: &str) -> Result<BTreeMap<String, String>, DotenvError> {
    let mut found = BTreeMap::new();
    for pair in dotenvy::from_read_iter(dotenv.as_bytes()) {
        match pair {
            Ok((name, value)) => found.insert(name, value),
            Err(dotenvy::Error::LineParse(bad, _)) => {
                return Err(DotenvError { line: line_of(dotenv, &bad) });
            }
            Err(_) => return Err(DotenvError { line: 1 }),
        };
    }
    Ok(found)
}

fn line_of(text: &str, bad: &str) -> usize {
    let first = bad.lines().next().unwrap_or_default().trim();
    1 + text.lines().position(|line| line.trim().starts_with(first)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_beats_dotenv_and_blank_means_unset() {
        let process = [("A", "1"), ("B", " ")].map(|(name, value)| (name.into(), value.into()));
        let env = Environment::new(process, "A=2\nB=3\nexport C='x # y'\n# no\nD=\n").unwrap();
        assert_eq!(env.get("A"), Some(("1", VariableSource::Process)));
        assert_eq!(env.get("B"), Some(("3", VariableSource::DotEnv)));
        assert_eq!(env.get("C"), Some(("x # y", VariableSource::DotEnv)));
        assert_eq!(env.get("D"), None);
    }

    #[test]
    fn stored_secrets_are_between_process_and_dotenv() {
        let stored = |name: &str, source| (name.to_owned(), (format!("stored {name}"), source));
        let stored = [stored("A", VariableSource::Command), stored("B", VariableSource::Credential)];
        let env = Environment::new([("A".into(), "1".into())], "B=2\nC=3").unwrap();
        let env = env.with_stored(stored.into());
        assert_eq!(env.get("A"), Some(("1", VariableSource::Process)));
        assert_eq!(env.get("B"), Some(("stored B", VariableSource::Credential)));
        assert_eq!(env.get("C"), Some(("3", VariableSource::DotEnv)));
    }

    #[test]
    fn secrets_are_found_by_name_and_in_urls() {
        let process =
            [("GITHUB_TOKEN", "t0ken"), ("HOME", "/root"), ("DATABASE_URL", "postgres://postgres:pa55@db/x")];
        let process = process.map(|(name, value)| (name.into(), value.into()));
        let env =
            Environment::new(process, "MAX_TOKENS=123456789\nKEY_FILE=/dev/null\nAPI_KEY=/a+b\n").unwrap();
        let mut secrets: Vec<_> = env.secrets().collect();
        secrets.sort_unstable();
        assert_eq!(secrets, ["/a+b", "pa55", "t0ken"]);
    }

    #[test]
    fn invalid_line_is_reported_by_number_only() {
        let bad = Environment::new([], "A=1\n\nSECRET 'abc\n").unwrap_err();
        assert_eq!(bad, DotenvError { line: 3 });
    }
}
