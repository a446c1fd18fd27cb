//! What the owner set: `config.yaml`, `.env` and the environment become settings that know their origin.
//!
//! One way through: text -> value -> `${VAR}` -> environment -> settings -> (in the wiring) the plain structs that
//! the parts take. After that nobody checks again. Nothing is half applied: either everything is right, or
//! nothing starts and all problems are told at once.

pub mod catalogue;
pub mod choices;
mod environment;
mod expand;
mod explain;
mod home;
mod key;
pub mod limits;
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
use std::time::Duration;

use petasos_core::Provider;

pub use catalogue as keys;
pub use environment::{Environment, Place};
pub use explain::{Explanation, explain, explain_all, explain_group, explain_unset, known_paths, reference};
pub use home::{Home, Nowhere};
pub use key::{Closed, Declared, Default, Effect, Key, Kind, PlatformKey, Reload};
pub use problem::{Problem, Severity};
pub use resolve::Resolved;
pub use settings::{Origin, Settings};

/// Reads the files of `home` and the environment of this process.
pub fn load(home: &Home) -> Resolved {
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
pub struct ForConnector {
    pub own: Resolved,
    pub platforms: Resolved,
}

pub fn load_connector(home: &Home) -> ForConnector {
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
    let Some((section, name)) = keys::connector::PLATFORMS.declared.path.split_once('.') else {
        return Resolved::default();
    };
    resolve::resolve(document.below(section, &[name]), &env)
}

/// The same without files.
pub fn from_texts(
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

/// Who serves the model: named, or following from the rest. `None`: there is a problem.
pub fn provider(settings: &Settings) -> Option<Provider> {
    model::named(settings.get(&keys::model::PROVIDER))
}

/// Nobody who wants a stop waits longer than a day for turns.
const LONGEST_DRAIN: Duration = Duration::from_secs(24 * 3600);

/// How long a stop waits for running turns.
pub fn drain_timeout(settings: &Settings) -> Duration {
    settings.get(&keys::gateway::DRAIN_TIMEOUT).min(LONGEST_DRAIN)
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
