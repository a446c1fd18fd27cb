//! Environment variables of the process, then those of `.env` in the home.
//!
//! `.env` never enters the process environment, so that child processes do not inherit its secrets.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSource {
    Process,
    DotEnv,
}

#[derive(Debug, Default, Clone)]
pub struct Environment {
    process: BTreeMap<String, String>,
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
        Ok(Self { process: process.into_iter().collect(), file: parse(dotenv)? })
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
        set(&self.file).then(|| (self.file[name].trim(), VariableSource::DotEnv))
    }
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
    fn invalid_line_is_reported_by_number_only() {
        let bad = Environment::new([], "A=1\n\nSECRET 'abc\n").unwrap_err();
        assert_eq!(bad, DotenvError { line: 3 });
    }
}
