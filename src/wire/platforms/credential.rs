//! Checks that are the same for the credentials of every platform.

use petasos_config::{Key, Problem, Settings};
use petasos_core::Secret;

/// Placeholders from copied examples, also after the prefix of a real token.
const PLACEHOLDERS: [&str; 7] = ["your", "token", "changeme", "change_me", "placeholder", "xxx", "<"];
const TOKEN_PREFIXES: [&str; 2] = ["xoxb-", "xapp-"];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Credential {
    pub(crate) key: Key<Option<Secret>>,
    /// Name to show, such as `token`.
    pub(crate) name: &'static str,
    pub(crate) missing: &'static str,
    pub(crate) replace: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enabled {
    No,
    /// Not set: enabled if there are credentials.
    IfConfigured,
    Yes,
}

pub(crate) fn enabled(settings: &Settings, enabled: &Key<Option<bool>>) -> Enabled {
    match settings.get(enabled) {
        Some(true) => Enabled::Yes,
        Some(false) => Enabled::No,
        None => Enabled::IfConfigured,
    }
}

/// The secret. `None` if it is missing or a placeholder; a missing one is an error if the platform is
/// explicitly enabled.
pub(crate) fn require(
    settings: &Settings,
    (enabled, label): (&Key<Option<bool>>, &str),
    credential: Credential,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let Credential { key, name, missing, replace } = credential;
    let Some(secret) = settings.get(&key) else {
        if self::enabled(settings, enabled) == Enabled::Yes {
            let place = settings.origin(enabled).to_string();
            let platform = enabled.to_string();
            let what =
                format!("{} is enabled, but there is no {name}", platform.trim_end_matches(".enabled"));
            problems.push(Problem::error(place, what).next(missing));
        }
        return None;
    };
    if is_placeholder(secret.expose()) {
        let what = format!("{key} is a placeholder, so {label} stays off");
        problems.push(Problem::warning(settings.origin(&key).to_string(), what).next(replace));
        return None;
    }
    Some(secret.expose().to_owned())
}

pub(crate) fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let rest = TOKEN_PREFIXES.iter().find_map(|it| lower.strip_prefix(it)).unwrap_or(&lower);
    PLACEHOLDERS.iter().any(|word| rest.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_placeholders_from_tokens() {
        for (text, want) in [
            ("your-token-here", true),
            ("<token>", true),
            ("ChangeMe", true),
            ("xoxb-your-bot-token", true),
            ("xapp-xxx", true),
            ("123:abc", false),
            ("xoxb-12-34-ab", false),
            ("xapp-1-A012-34-ab", false),
            ("MTc1OTI4ODQ3.GhIjKl.rest", false),
        ] {
            assert_eq!(is_placeholder(text), want, "{text}");
        }
    }
}
