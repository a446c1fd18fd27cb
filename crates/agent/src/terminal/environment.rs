//! Environment of child processes. Commands of the agent get listed variables and the session identity; hooks and
//! servers, which the owner has configured, get the gateway's environment without secrets.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use petasos_core::Platform;

use crate::tools::SessionCtx;
use crate::tools::context::CRON_VARIABLES;

pub type Variable = (OsString, OsString);

/// The inherited environment without private variables, for children that belong to no session.
pub fn public_environment(inherited: impl Iterator<Item = Variable>) -> Vec<Variable> {
    inherited.filter(|(name, _)| !is_private(name)).collect()
}

/// The environment of a session's child. `allowed`: names passed on besides the usual ones.
pub(super) fn of_session(
    ctx: &SessionCtx,
    allowed: &[String],
    inherited: impl Iterator<Item = Variable>,
) -> Vec<Variable> {
    let mut child: Vec<Variable> = inherited.filter(|(name, _)| is_allowed(name, allowed)).collect();
    let real_home = child.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.clone());
    let home = |path: &Path| path.as_os_str().to_owned();
    let own = [
        ("PETASOS_HOME", home(&ctx.home)),
        ("HERMES_HOME", home(&ctx.home)),
        ("HERMES_REAL_HOME", real_home.unwrap_or_default()),
        ("HERMES_EXEC_ASK", "1".into()),
        ("HERMES_QUIET", "1".into()),
        ("_HERMES_GATEWAY", "1".into()),
    ];
    let identity = ctx.variables().map(|(name, value)| (name, OsString::from(value)));
    for (name, value) in own.into_iter().chain(identity) {
        child.retain(|(known, _)| known != name);
        child.push((name.into(), value));
    }
    child
}

/// Variables that the shell must not carry from one command to the next; each command gets them anew.
pub(super) fn volatile_names(ctx: &SessionCtx) -> impl Iterator<Item = &'static str> {
    let identity = ctx.variables().map(|(name, _)| name);
    let shells = ["PWD", "OLDPWD", "SHLVL", "_", "PYTHONUNBUFFERED"];
    let own = ["PETASOS_HOME", "HERMES_HOME", "HERMES_REAL_HOME"];
    identity.into_iter().chain(shells).chain(own)
}

/// Variables of commands: those that programs expect, and none that could contain a secret.
const USUAL: [&str; 17] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
];
const LOCALE: &str = "LC_";

fn is_allowed(name: &OsStr, allowed: &[String]) -> bool {
    let Some(name) = name.to_str() else { return false };
    let upper = name.to_ascii_uppercase();
    let listed = allowed.iter().any(|it| it == name) && !NEVER_ALLOWED.iter().any(|end| upper.ends_with(end));
    USUAL.contains(&name) || name.starts_with(LOCALE) || listed
}

const PRIVATE_SUFFIXES: [&str; 10] = [
    "_KEY",
    "_BASE_URL",
    "_TOKEN",
    "_TOKEN_ID",
    "_SECRET",
    "_PASSWORD",
    "_ALLOWED_USERS",
    "_ALLOW_ALL_USERS",
    "_HOME_CHANNEL",
    "_HOME_CHANNEL_NAME",
];
const PRIVATE_PREFIXES: [&str; 4] = ["_HERMES_FORCE_", "AUXILIARY_", "GATEWAY_RELAY_", "HERMES_SESSION_"];
/// Not secret but wrong in a child: service manager variables and environments we were started from.
const NOT_FOR_CHILDREN: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];
/// Suffixes that `allowed` cannot override: provider keys and their endpoints.
const NEVER_ALLOWED: [&str; 2] = ["_API_KEY", "_BASE_URL"];

fn is_private(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    if NOT_FOR_CHILDREN.contains(&name) || CRON_VARIABLES.contains(&name) {
        return true;
    }
    let upper = name.to_ascii_uppercase();
    // Hooks use the standard AWS credential chain.
    if upper.starts_with("AWS_") {
        return false;
    }
    PRIVATE_SUFFIXES.iter().any(|end| upper.ends_with(end))
        || is_platform_proxy(&upper)
        || PRIVATE_PREFIXES.iter().any(|start| upper.starts_with(start))
}

/// A platform's proxy address may contain a password.
fn is_platform_proxy(upper: &str) -> bool {
    let platform = upper.strip_suffix("_PROXY");
    platform.is_some_and(|name| Platform::all().any(|it| name.ends_with(&it.as_str().to_ascii_uppercase())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::testing;

    fn child(inherited: &[(&str, &str)], allowed: &[&str]) -> Vec<(String, String)> {
        let inherited = inherited.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let ctx = testing::ctx(Path::new("/h"), "telegram", "7");
        let child = of_session(&ctx, &allowed, inherited);
        child
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    fn has(child: &[(String, String)], name: &str) -> bool {
        child.iter().any(|(known, _)| known == name)
    }

    #[test]
    fn withholds_secrets_from_children() {
        let secret = [
            "OPENAI_API_KEY",
            "ANTHROPIC_BASE_URL",
            "TELEGRAM_BOT_TOKEN",
            "SLACK_APP_TOKEN",
            "TELEGRAM_ALLOWED_USERS",
            "DISCORD_HOME_CHANNEL",
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "MODAL_TOKEN_ID",
            "MODAL_TOKEN_SECRET",
            "GATEWAY_RELAY_ID",
            "SUDO_PASSWORD",
            "_HERMES_FORCE_X",
            "NOTIFY_SOCKET",
            "VIRTUAL_ENV",
            "HERMES_CRON_AUTO_DELIVER_CHAT_ID",
            "API_SERVER_KEY",
            "TELEGRAM_PROXY",
            "DATABASE_URL",
            "AWS_SECRET_ACCESS_KEY",
            "HTTPS_PROXY",
            "https_proxy",
            "SSH_AUTH_SOCK",
            "BASH_ENV",
            "ENV",
            "LD_PRELOAD",
            "SOMETHING_NEW",
        ];
        let inherited: Vec<_> = secret.iter().map(|name| (*name, "x")).collect();
        let child = child(&inherited, &[]);
        for name in secret {
            assert!(!has(&child, name), "{name}");
        }
    }

    #[test]
    fn passes_on_public_and_allowed_variables() {
        let inherited =
            [("PATH", "/bin"), ("LC_ALL", "C"), ("MY_TOKEN", "t"), ("X_API_KEY", "k"), ("HTTPS_PROXY", "p")];
        let child = child(&inherited, &["MY_TOKEN", "X_API_KEY", "HTTPS_PROXY"]);
        for name in ["PATH", "LC_ALL", "MY_TOKEN", "HTTPS_PROXY"] {
            assert!(has(&child, name), "{name}");
        }
        assert!(!has(&child, "X_API_KEY"), "a provider's key cannot be allowed");
    }

    #[test]
    fn hooks_keep_the_environment_without_secrets() {
        let inherited = ["HTTPS_PROXY", "AWS_PROFILE", "ANYTHING", "GITHUB_TOKEN", "NOTIFY_SOCKET"];
        let inherited = inherited.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let passed: Vec<_> = public_environment(inherited).into_iter().map(|(name, _)| name).collect();
        assert_eq!(passed, ["HTTPS_PROXY", "AWS_PROFILE", "ANYTHING"]);
    }

    #[test]
    fn session_identity_replaces_inherited_values() {
        let child = child(&[("HERMES_SESSION_KEY", "another session"), ("HERMES_HOME", "/other")], &[]);
        let values = |name: &str| -> Vec<&str> {
            child.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
        };
        assert_eq!(values("HERMES_SESSION_KEY"), ["agent:main:telegram:dm:7"]);
        assert_eq!(values("HERMES_HOME"), ["/h"]);
        assert_eq!(values("HERMES_SESSION_USER_ID"), [""]);
    }
}
