//! Secrets in the environment of the process.

use petasos_config::Settings;

use super::{Check, Weakness};

const ENVIRONMENT: &str =
    "Programs of the same user, such as tools of the agent, can read the environment of a process.";

pub(super) fn weaknesses(settings: &Settings) -> Vec<Weakness> {
    let weakness = |name: String| {
        let fix = "put it into .env in the home, or use secrets.commands or LoadCredential=";
        Weakness::moderate(Check::Secrets, format!("{name} is set in the environment"), ENVIRONMENT, fix)
    };
    settings.secret_variables().into_iter().map(weakness).collect()
}
