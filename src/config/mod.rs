//! What the owner set: `config.yaml`, `.env` and the environment become settings that know their origin.
//!
//! One way through: text -> value -> `${VAR}` -> environment -> settings -> (in `wire`) the plain structs that
//! the parts take. After that nobody checks again. Nothing is half applied: either everything is right, or
//! nothing starts and all problems are told at once.

pub(crate) mod catalogue;
mod environment;
mod expand;
mod explain;
mod home;
mod model;
mod problem;
mod resolve;
mod settings;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

use std::io::ErrorKind;
use std::path::Path;

pub(crate) use environment::{Environment, Place};
pub(crate) use explain::{Explanation, explain, explain_all, explain_group, reference};
pub(crate) use home::{Home, Nowhere};
pub(crate) use problem::{Problem, Severity};
pub(crate) use resolve::Resolved;
pub(crate) use settings::{Origin, Settings};

/// Reads the files of `home` and the environment of this process.
pub(crate) fn load(home: &Home) -> Resolved {
    let yaml = match bytes_of(&home.config_file(), "config.yaml") {
        Ok(bytes) => bytes,
        Err(problem) => return refused(problem),
    };
    let dotenv = match bytes_of(&home.dotenv_file(), ".env") {
        Ok(bytes) => bytes,
        Err(problem) => return refused(problem),
    };
    from_texts(&yaml, &dotenv, Environment::of_process())
}

/// What a connector is set to: its own keys, and its platforms as if they were a gateway's.
#[derive(Debug)]
pub(crate) struct ForConnector {
    pub(crate) own: Resolved,
    pub(crate) platforms: Resolved,
}

pub(crate) fn load_connector(home: &Home) -> ForConnector {
    let own = load(home);
    let platforms =
        match (bytes_of(&home.config_file(), "config.yaml"), bytes_of(&home.dotenv_file(), ".env")) {
            (Ok(yaml), Ok(dotenv)) => connector_from_texts(&yaml, &dotenv, Environment::of_process()),
            // Said above.
            (Err(_), _) | (_, Err(_)) => Resolved::default(),
        };
    ForConnector { own, platforms }
}

/// The same without files, and without what `from_texts` says already.
fn connector_from_texts(
    yaml: &[u8],
    dotenv: &[u8],
    process: impl IntoIterator<Item = (String, String)>,
) -> Resolved {
    let text = std::str::from_utf8(dotenv).ok();
    let env = text.and_then(|dotenv| Environment::new(process, dotenv).ok());
    let (Some(env), Ok(document)) = (env, yaml::parse(yaml)) else { return Resolved::default() };
    resolve::resolve(document.below("connector", &["platforms"]), &env)
}

/// The same without files.
pub(crate) fn from_texts(
    yaml: &[u8],
    dotenv: &[u8],
    process: impl IntoIterator<Item = (String, String)>,
) -> Resolved {
    let Ok(dotenv) = std::str::from_utf8(dotenv) else {
        return refused(Problem::error(".env", "the file is not UTF-8 text").next("save it as UTF-8"));
    };
    let env = match Environment::new(process, dotenv) {
        Ok(env) => env,
        Err(bad) => {
            let problem = Problem::error(format!(".env:{}", bad.line), "this line is not NAME=value");
            return refused(problem.next("put values with spaces or # in quotes"));
        }
    };
    let document = match yaml::parse(yaml) {
        Ok(document) => document,
        Err(bad) => {
            let mut problem = Problem::error(format!("config.yaml:{}:{}", bad.line, bad.column), bad.reason);
            problem.shown = Some(bad.shown);
            return refused(problem);
        }
    };
    let mut resolved = resolve::resolve(document, &env);
    model::settle(&env, &mut resolved);
    resolved.sort();
    resolved
}

fn refused(problem: Problem) -> Resolved {
    Resolved { settings: Settings::default(), problems: vec![problem] }
}

/// A file that is not there is an empty one.
fn bytes_of(path: &Path, name: &str) -> Result<Vec<u8>, Problem> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            let problem = Problem::error(name, format!("{} cannot be read: {error}", path.display()));
            Err(problem.next("check its owner and permissions"))
        }
    }
}
