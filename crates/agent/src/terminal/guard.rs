//! Commands that are not started at all, whoever would allow them: those that would hang a foreground call, and
//! those that would end the gateway under the turn that runs them.
//!
//! Reading, not judging: whether a command is dangerous is decided elsewhere (see [`super::Judge`]).

use std::sync::LazyLock;

use regex::Regex;

/// Why a command is not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// It does not end by itself, or leaves something behind.
    LongLived(&'static str),
    /// It would stop or restart the gateway.
    Gateway,
}

/// For a command whose end is waited for.
pub(super) fn foreground(command: &str) -> Result<(), Refused> {
    any(command)?;
    let bare = outside_quotes(command);
    if matches(&DETACHES, &bare) {
        return Err(Refused::LongLived("it detaches itself (nohup, disown or setsid)"));
    }
    if sends_to_background(&bare) {
        return Err(Refused::LongLived("it uses the shell's &"));
    }
    if matches(&SERVES, &bare) && !matches(&ASKS_ONLY, &bare) {
        return Err(Refused::LongLived("it looks like a server or a watcher that does not end"));
    }
    Ok(())
}

/// For every command.
pub(super) fn any(command: &str) -> Result<(), Refused> {
    if matches(&ENDS_GATEWAY, &outside_quotes(command)) { Err(Refused::Gateway) } else { Ok(()) }
}

/// The first character of a directory's name that is not taken as it is.
pub(super) fn strange_in_path(path: &str) -> Option<char> {
    path.chars().find(|c| !c.is_ascii_alphanumeric() && !"/\\:_-.~ +@=,".contains(*c))
}

/// A command that goes to the background anyway needs no `&` at its end.
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
    // A pattern of ours that does not compile fails the tests below.
    Regex::new(text).ok()
}

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

static DETACHES: Pattern = LazyLock::new(|| pattern(r"(?:^|[\s;|&(])(?:nohup|disown|setsid)(?:\s|;|$)"));
static SERVES: Pattern = LazyLock::new(|| {
    pattern(
        r"(?x)(?:^|[\s;|&(/])(?:
            (?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:dev|start|serve|watch)
            | docker(?:\s+|-)compose\s+(?:-\S+\s+\S+\s+)*up
            | next\s+dev | vite | nodemon | uvicorn | gunicorn
            | python[0-9.]*\s+-m\s+http\.server
        )(?:\s|;|$)",
    )
});
static ASKS_ONLY: Pattern = LazyLock::new(|| pattern(r"\s(?:--help|-h|--version|-V|-d|--detach)(?:\s|$)"));
static ENDS_GATEWAY: Pattern = LazyLock::new(|| {
    pattern(
        r"(?x)(?:^|[\s;|&(/])(?:
            petasos\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?(?:gateway\s+)?(?:stop|restart)
            | hermes\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?)*?gateway\s+(?:stop|restart)
            | systemctl\s+(?:-\S+\s+)*(?:stop|restart|kill|disable)\s+(?:-\S+\s+)*(?:petasos|hermes-gateway)\S*
            | (?:pkill|killall)\s+(?:-\S+\s+)*(?:petasos|hermes)
        )(?:\s|;|$)",
    )
});

/// The command with what stands in quotes, or behind a backslash, blanked out.
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
                // A comment, up to the end of its line.
                chars.by_ref().find(|c| *c == '\n');
                bare.push('\n');
            }
            (None, _) => bare.push(c),
        }
    }
    bare
}

/// A single `&` that is no redirection.
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
    fn what_ends_by_itself_is_run() {
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
            assert_eq!(foreground(command), Ok(()), "{command}");
        }
    }

    #[test]
    fn what_would_hang_or_escape_is_not() {
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
            assert!(matches!(foreground(command), Err(Refused::LongLived(_))), "{command}");
        }
    }

    #[test]
    fn the_gateway_is_not_ended_from_within() {
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
            assert_eq!(any(command), Err(Refused::Gateway), "{command}");
        }
    }

    #[test]
    fn a_directory_is_named_in_plain_characters() {
        assert_eq!(strange_in_path("/srv/my project_1.0+x@y=z,~"), None);
        assert_eq!(strange_in_path("/tmp/$(id)"), Some('$'));
        assert_eq!(strange_in_path("a;b"), Some(';'));
        assert_eq!(strange_in_path("/t\u{e9}"), Some('\u{e9}'));
    }

    #[test]
    fn one_ampersand_at_the_end_is_left_off() {
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
