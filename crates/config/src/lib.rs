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
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::{Provider, Secret};

pub use catalogue as keys;
pub use environment::{Environment, VariableSource};
pub use explain::{Explanation, explain, explain_all, explain_group, explain_unset, known_paths, reference};
pub use home::{Home, NoHomeError};
pub use key::{Closed, Declared, Default, Effect, Key, Kind, PlatformKey, Reload};
pub use problem::{Problem, Severity};
pub use resolve::Resolved;
pub use secrets::SecretError;
pub use settings::{Origin, Settings};

/// Loads the files of `home` and the environment of this process. Runs no command: variables of `secrets.commands` have a
/// placeholder.
pub fn load(home: &Home) -> Resolved {
    match Sources::read(home) {
        Ok(sources) => sources.resolve(),
        Err(problem) => failed(problem),
    }
}

/// Like `load`, for a process that uses its secrets: runs `secrets.commands`.
pub fn load_with_secrets(home: &Home) -> Result<Resolved, SecretError> {
    match Sources::read(home) {
        Ok(sources) => Ok(sources.with_secrets()?.resolve()),
        Err(problem) => Ok(failed(problem)),
    }
}

/// Like `load_with_secrets`; a secret that cannot be read is one of the problems.
pub fn load_checked(home: &Home) -> Resolved {
    load_with_secrets(home).unwrap_or_else(|error| {
        let mut resolved = load(home);
        resolved.problems.push(Problem::error(error.place, error.reason));
        resolved
    })
}

/// Configuration of a connector: its own keys, and its platforms in the form of a gateway's.
#[derive(Debug)]
pub struct ForConnector {
    pub own: Resolved,
    pub platforms: Resolved,
}

/// Runs `secrets.commands`.
pub fn load_connector(home: &Home) -> Result<ForConnector, SecretError> {
    let sources = match Sources::read(home) {
        Ok(sources) => sources.with_secrets()?,
        Err(problem) => return Ok(ForConnector { own: failed(problem), platforms: Resolved::default() }),
    };
    Ok(ForConnector { own: sources.resolve(), platforms: sources.resolve_connector() })
}

/// Like `load`, without files.
pub fn from_texts(
    yaml: &[u8],
    dotenv: &[u8],
    process: impl IntoIterator<Item = (String, String)>,
) -> Resolved {
    let process = process.into_iter().collect();
    Sources { yaml: yaml.into(), dotenv: dotenv.into(), process, stored: secrets::Variables::new() }.resolve()
}

/// The texts and variables that settings are resolved from.
struct Sources {
    yaml: Vec<u8>,
    dotenv: Vec<u8>,
    process: Vec<(String, String)>,
    /// From credentials and commands.
    stored: secrets::Variables,
}

impl Sources {
    fn read(home: &Home) -> Result<Self, Problem> {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let stored = secrets::credentials(directory.as_deref());
        Ok(Self {
            yaml: read_file(&home.config_file(), "config.yaml")?,
            dotenv: read_file(&home.dotenv_file(), ".env")?,
            process: Environment::of_process().collect(),
            stored: stored.map_err(|error| Problem::error(error.place, error.reason))?,
        })
    }

    fn with_secrets(mut self) -> Result<Self, SecretError> {
        let settings = self.resolve_stored(&self.stored).settings;
        let mut commands = secrets::commands(&settings)?;
        commands.retain(|command| !self.stored.contains_key(&command.variable));
        self.stored.extend(secrets::run(&commands, settings.get(&keys::secrets::COMMAND_TIMEOUT))?);
        Ok(self)
    }

    /// With placeholders for commands that were not run.
    fn resolve(&self) -> Resolved {
        let mut resolved = self.resolve_stored(&self.stored);
        match secrets::commands(&resolved.settings) {
            Ok(commands) if commands.iter().any(|command| !self.stored.contains_key(&command.variable)) => {
                let mut stored = secrets::placeholders(&commands);
                stored.extend(self.stored.clone());
                self.resolve_stored(&stored)
            }
            Ok(_) => resolved,
            Err(error) => {
                resolved.problems.push(Problem::error(error.place, error.reason));
                resolved
            }
        }
    }

    fn resolve_stored(&self, stored: &secrets::Variables) -> Resolved {
        let env = match self.environment(stored) {
            Ok(env) => env,
            Err(problem) => return failed(problem),
        };
        let document = match yaml::parse(&self.yaml) {
            Ok(document) => document,
            Err(bad) => {
                let mut problem =
                    Problem::error(format!("config.yaml:{}:{}", bad.line, bad.column), bad.reason);
                problem.shown = Some(bad.shown);
                return failed(problem.next("correct this line; the file must be YAML in UTF-8"));
            }
        };
        let mut resolved = resolve::resolve(document, &env);
        model::fill_in(&env, &mut resolved);
        resolved.sort();
        let secrets = resolved.settings.secrets().into_iter().map(Secret::new);
        resolved.secrets = secrets.chain(env.secrets().map(Secret::new)).collect();
        resolved
    }

    /// The platforms of a connector, without the problems that `resolve` already reports.
    fn resolve_connector(&self) -> Resolved {
        let (Ok(env), Ok(document)) = (self.environment(&self.stored), yaml::parse(&self.yaml)) else {
            return Resolved::default();
        };
        let Some((section, name)) = keys::connector::PLATFORMS.declared.path.split_once('.') else {
            return Resolved::default();
        };
        resolve::resolve(document.below(section, &[name]), &env)
    }

    fn environment(&self, stored: &secrets::Variables) -> Result<Environment, Problem> {
        let Ok(dotenv) = std::str::from_utf8(&self.dotenv) else {
            return Err(Problem::error(".env", "the file is not UTF-8 text").next("save it as UTF-8"));
        };
        match Environment::new(self.process.clone(), dotenv) {
            Ok(env) => Ok(env.with_stored(stored.clone())),
            Err(bad) => {
                let problem = Problem::error(format!(".env:{}", bad.line), "this line is not NAME=value");
                Err(problem.next("put values with spaces or # in quotes"))
            }
        }
    }
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
    Resolved { problems: vec![problem], ..Resolved::default() }
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
