//! Configuration: `config.yaml`, `.env` and the environment, resolved to settings with their origin.
//!
//! Pipeline: text, YAML value, `${VAR}` expansion, environment, settings, and (in the wiring) plain structs for the
//! components, which need no further validation. Loading is all-or-nothing: it reports all problems at once, or succeeds.

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
pub use environment::{Environment, VariableSource};
pub use explain::{Explanation, explain, explain_all, explain_group, explain_unset, known_paths, reference};
pub use home::{Home, NoHomeError};
pub use key::{Closed, Declared, Default, Effect, Key, Kind, PlatformKey, Reload};
pub use problem::{Problem, Severity};
pub use resolve::Resolved;
pub use settings::{Origin, Settings};

/// Loads the files of `home` and the environment of this process.
pub fn load(home: &Home) -> Resolved {
    let yaml = match read_file(&home.config_file(), "config.yaml") {
        Ok(bytes) => bytes,
        Err(problem) => return failed(problem),
    };
    let dotenv = match read_file(&home.dotenv_file(), ".env") {
        Ok(bytes) => bytes,
        Err(problem) => return failed(problem),
    };
    from_texts(&yaml, &dotenv, Environment::of_process())
}

/// Configuration of a connector: its own keys, and its platforms in the form of a gateway's.
#[derive(Debug)]
pub struct ForConnector {
    pub own: Resolved,
    pub platforms: Resolved,
}

pub fn load_connector(home: &Home) -> ForConnector {
    let own = load(home);
    let platforms =
        match (read_file(&home.config_file(), "config.yaml"), read_file(&home.dotenv_file(), ".env")) {
            (Ok(yaml), Ok(dotenv)) => connector_from_texts(&yaml, &dotenv, Environment::of_process()),
            // Already reported by `load`.
            (Err(_), _) | (_, Err(_)) => Resolved::default(),
        };
    ForConnector { own, platforms }
}

/// Resolves the platforms of a connector, without the problems that `from_texts` already reports.
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

/// Like `load`, without files.
pub fn from_texts(
    yaml: &[u8],
    dotenv: &[u8],
    process: impl IntoIterator<Item = (String, String)>,
) -> Resolved {
    let Ok(dotenv) = std::str::from_utf8(dotenv) else {
        return failed(Problem::error(".env", "the file is not UTF-8 text").next("save it as UTF-8"));
    };
    let env = match Environment::new(process, dotenv) {
        Ok(env) => env,
        Err(bad) => {
            let problem = Problem::error(format!(".env:{}", bad.line), "this line is not NAME=value");
            return failed(problem.next("put values with spaces or # in quotes"));
        }
    };
    let document = match yaml::parse(yaml) {
        Ok(document) => document,
        Err(bad) => {
            let mut problem = Problem::error(format!("config.yaml:{}:{}", bad.line, bad.column), bad.reason);
            problem.shown = Some(bad.shown);
            return failed(problem.next("correct this line; the file must be YAML in UTF-8"));
        }
    };
    let mut resolved = resolve::resolve(document, &env);
    model::fill_in(&env, &mut resolved);
    resolved.sort();
    resolved
}

/// The provider, configured or derived. `None`: there is a problem.
pub fn provider(settings: &Settings) -> Option<Provider> {
    model::named(settings.get(&keys::model::PROVIDER))
}

/// Upper limit of the drain timeout.
const MAX_DRAIN_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub fn drain_timeout(settings: &Settings) -> Duration {
    settings.get(&keys::gateway::DRAIN_TIMEOUT).min(MAX_DRAIN_TIMEOUT)
}

fn failed(problem: Problem) -> Resolved {
    Resolved { settings: Settings::default(), problems: vec![problem] }
}

/// A missing file counts as empty.
fn read_file(path: &Path, name: &str) -> Result<Vec<u8>, Problem> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            let problem = Problem::error(name, format!("{} cannot be read: {error}", path.display()));
            Err(problem.next("check its owner and permissions"))
        }
    }
}
