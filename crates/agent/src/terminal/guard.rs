//! Rejects commands before approval: those that would hang a foreground call, and those that would stop the
//! gateway.
//!
//! Purely syntactic; [`super::CommandApprover`] decides whether a command is too dangerous.

use std::sync::LazyLock;

use regex::Regex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandRejection {
    /// Does not end by itself, or leaves a process behind.
    LongLived(&'static str),
    Gateway,
}

pub(super) fn check_foreground(command: &str) -> Result<(), CommandRejection> {
    check_any(command)?;
    let bare = outside_quotes(command);
    if matches(&DETACHES, &bare) {
        return Err(CommandRejection::LongLived("it detaches itself (nohup, disown or setsid)"));
    }
    if sends_to_background(&bare) {
        return Err(CommandRejection::LongLived("it uses the shell's &"));
    }
    if matches(&LONG_RUNNING, &bare) && !matches(&ENDS_AT_ONCE, &bare) {
        return Err(CommandRejection::LongLived("it looks like a server or a watcher that does not end"));
    }
    Ok(())
}

pub(super) fn check_any(command: &str) -> Result<(), CommandRejection> {
    if matches(&STOPS_GATEWAY, &outside_quotes(command)) { Err(CommandRejection::Gateway) } else { Ok(()) }
}

/// The first character that a working directory must not contain.
pub(super) fn invalid_path_char(path: &str) -> Option<char> {
    path.chars().find(|c| !c.is_ascii_alphanumeric() && !"/\\:_-.~ +@=,".contains(*c))
}

/// Strips a trailing `&`, which a background command does not need.
pub(super) fn without_trailing_ampersand(command: &str) -> &str {
    let trimmed = command.trim_end();
    match trimmed.strip_suffix('&') {
        Some(rest) if !rest.ends_with(['&', '\\', '>', '<']) && outside_quotes(trimmed).ends_with('&') => {
            rest.trim_end()
        }
        Some(_) | None => command,
    }
}

type Pattern = LazyLock<Option<Regex>>;

fn pattern(text: &str) -> Option<Regex> {
    // The tests below cover every pattern.
    Regex::new(text).ok()
}

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

static DETACHES: Pattern = LazyLock::new(|| pattern(r"(?:^|[\s;|&(])(?:nohup|disown|setsid)(?:\s|;|$)"));
static LONG_RUNNING: Pattern = LazyLock::new(|| {
    pattern(
        r"(?x)(?:^|[\s;|&(/])(?:
            (?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:dev|start|serve|watch)
            | docker(?:\s+|-)compose\s+(?:-\S+\s+\S+\s+)*up
            | next\s+dev | vite | nodemon | uvicorn | gunicorn
            | python[0-9.]*\s+-m\s+http\.server
        )(?:\s|;|$)",
    )
});
static ENDS_AT_ONCE: Pattern = LazyLock::new(|| pattern(r"\s(?:--help|-h|--version|-V|-d|--detach)(?:\s|$)"));
static STOPS_GATEWAY: Pattern = LazyLock::new(|| {
    pattern(
        r"(?x)(?:^|[\s;|&(/])(?:
            petasos\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?(?:gateway\s+)?(?:stop|restart)
            | hermes\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?gateway\s+(?:stop|restart)
            | systemctl\s+(?:-\S+\s+)*(?:stop|restart|kill|disable)\s+(?:-\S+\s+)*(?:petasos|hermes-gateway)\S*
            | (?:pkill|killall)\s+(?:-\S+\s+)*(?:petasos|hermes)
        )(?:\s|;|$)",
    )
});

/// Blanks out quoted and escaped text, and comments.
fn outside_quotes(command: &str) -> String {
    let mut bare = String::with_capacity(command.len());
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => {
                quote = None;
                bare.push('_');
            }
            (Some('"') | None, '\\') => {
                chars.next();
                bare.push('_');
            }
            (Some(_), _) => bare.push('_'),
            (None, '\'' | '"') => {
                quote = Some(c);
                bare.push('_');
            }
            (None, '#') if bare.is_empty() || bare.ends_with(char::is_whitespace) => {
                chars.by_ref().find(|c| *c == '\n');
                bare.push('\n');
            }
            (None, _) => bare.push(c),
        }
    }
    bare
}

/// Whether a single `&` occurs that is not part of a redirection.
fn sends_to_background(bare: &str) -> bool {
    let bytes = bare.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + 1).copied();
        *byte == b'&'
            && !matches!(before, Some(b'&' | b'>' | b'<' | b'|'))
            && !matches!(after, Some(b'&' | b'>'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_commands_that_end() {
        for command in [
            "ls -la && echo done",
            "make 2>&1 | tail -5",
            "cargo build &> log.txt",
            "echo 'nohup this &'",
            "echo \"a & b\"",
            "npm run build",
            "vite --version",
            "npm start --help",
            "docker compose up -d",
            "grep -r uvicorn_settings src",
            "git commit -m 'petasos stop'",
            "petasos status",
            "cat x # run this with & later",
            "ls a\\&b",
        ] {
            assert_eq!(check_foreground(command), Ok(()), "{command}");
        }
    }

    #[test]
    fn rejects_commands_that_hang_or_detach() {
        for command in [
            "npm run dev",
            "yarn start",
            "cd app; pnpm watch",
            "docker compose up",
            "docker-compose -f x.yml up",
            "python3 -m http.server 8000",
            "/usr/bin/uvicorn app:app",
            "sleep 100 &",
            "(sleep 1 & sleep 2)",
            "nohup ./job",
            "./job & disown",
            "setsid ./job",
        ] {
            assert!(matches!(check_foreground(command), Err(CommandRejection::LongLived(_))), "{command}");
        }
    }

    #[test]
    fn rejects_commands_that_stop_the_gateway() {
        for command in [
            "petasos stop",
            "petasos gateway restart",
            "/usr/bin/petasos --home /x stop",
            "hermes gateway restart",
            "systemctl --user restart petasos.service",
            "sudo systemctl stop hermes-gateway",
            "pkill -9 petasos",
            "sleep 1; killall hermes",
        ] {
            assert_eq!(check_any(command), Err(CommandRejection::Gateway), "{command}");
        }
    }

    #[test]
    fn finds_invalid_character_in_directory() {
        assert_eq!(invalid_path_char("/srv/my project_1.0+x@y=z,~"), None);
        assert_eq!(invalid_path_char("/tmp/$(id)"), Some('$'));
        assert_eq!(invalid_path_char("a;b"), Some(';'));
        assert_eq!(invalid_path_char("/t\u{e9}"), Some('\u{e9}'));
    }

    #[test]
    fn strips_one_trailing_ampersand() {
        for (command, want) in [
            ("sleep 5 &", "sleep 5"),
            ("a && b & ", "a && b"),
            ("a &&", "a &&"),
            ("echo '&'", "echo '&'"),
            ("echo \\&", "echo \\&"),
            ("sleep 5", "sleep 5"),
        ] {
            assert_eq!(without_trailing_ampersand(command), want, "{command}");
        }
    }
}
