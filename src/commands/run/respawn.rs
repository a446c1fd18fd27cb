//! Respawn limit: after too many starts in a row, interrupted turns wait before they are resumed.
//!
//! Updates the ledger of starts. A crash leaves a start that was counted.

use std::io::IsTerminal;
use std::time::Duration;

use petasos_cli::arguments::RunArguments;
use petasos_cli::commands::Context;
use petasos_gateway::{Lifetime, clock, home};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StartOrigin {
    person: bool,
    supervised: bool,
    /// `--replace` is a person's decision, not a loop.
    replaces: bool,
}

/// Records this start. Returns how long suspect turns wait if there were too many starts.
pub(super) fn record_start(
    context: &Context,
    lifetime: &Lifetime,
    arguments: RunArguments,
) -> Option<Duration> {
    // The first start creates the home; `lock::acquire` reports a failure.
    let _reported_there = context.home.create();
    let wait = home::starts::record(context.home.path(), lifetime.storm, clock::now())?;
    let origin = StartOrigin {
        person: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        supervised: lifetime.supervised,
        replaces: arguments.replace,
    };
    if !counts_as_respawn(origin) {
        return None;
    }
    tracing::warn!(
        seconds = wait.as_secs(),
        "started too often: interrupted turns wait before they are resumed; \
         gateway.respawn_storm.max_starts: 0 disables this"
    );
    Some(wait)
}

const fn counts_as_respawn(origin: StartOrigin) -> bool {
    let StartOrigin { person, supervised, replaces } = origin;
    !replaces && (supervised || !person)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unattended_starts_count_toward_respawn_limit() {
        for (person, supervised, replaces, want) in [
            (false, false, false, true),
            (false, true, false, true),
            (true, true, false, true),
            (true, false, false, false),
            (false, false, true, false),
            (false, true, true, false),
        ] {
            let origin = StartOrigin { person, supervised, replaces };
            assert_eq!(counts_as_respawn(origin), want, "{origin:?}");
        }
    }
}
