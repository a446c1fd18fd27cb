//! What every platform asks of its credentials before it is started.

use petasos_config::{Key, Problem, Settings};
use petasos_core::Secret;

/// What people leave in a copied example, perhaps behind the beginning of a real one.
const PLACEHOLDERS: [&str; 7] = ["your", "token", "changeme", "change_me", "placeholder", "xxx", "<"];
const BEGINNINGS: [&str; 2] = ["xoxb-", "xapp-"];

/// One secret that a platform cannot be without.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credential {
    pub(super) key: Key<Option<Secret>>,
    /// As people call it: `token`.
    pub(super) name: &'static str,
    /// What to do if there is none.
    pub(super) missing: &'static str,
    /// What to do about a placeholder.
    pub(super) replace: &'static str,
}

/// What the owner said about a platform as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    No,
    /// Said nothing: if there are credentials.
    Maybe,
    Yes,
}

pub(super) fn wanted(settings: &Settings, enabled: &Key<Option<bool>>) -> Wanted {
    match settings.get(enabled) {
        Some(true) => Wanted::Yes,
        Some(false) => Wanted::No,
        None => Wanted::Maybe,
    }
}

/// `None`: it is not there, or nobody has filled it in. Then a platform that was asked for is a problem.
pub(super) fn filled(
    settings: &Settings,
    (enabled, label): (&Key<Option<bool>>, &str),
    credential: Credential,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let Credential { key, name, missing, replace } = credential;
    let Some(secret) = settings.get(&key) else {
        if wanted(settings, enabled) == Wanted::Yes {
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

pub(super) fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let rest = BEGINNINGS.iter().find_map(|it| lower.strip_prefix(it)).unwrap_or(&lower);
    PLACEHOLDERS.iter().any(|word| rest.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_filled_in_is_told_from_a_token() {
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
