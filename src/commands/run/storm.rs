//! Respawn storms: too many starts in a row hold the turns that may have caused them.
//!
//! Owns the ledger of starts for a moment. A crash leaves a start that was counted.

use std::io::IsTerminal;
use std::time::Duration;

use petasos_cli::arguments::Run;
use petasos_cli::commands::Context;
use petasos_gateway::{Lifetime, clock, home};

/// Who started the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Starter {
    /// At a terminal.
    person: bool,
    supervised: bool,
    /// A `--replace` is a decision of a person, not a loop.
    replaces: bool,
}

/// Counts this start. Returns how long its suspects wait, if there were too many starts.
pub(super) fn record_start(context: &Context, lifetime: &Lifetime, how: Run) -> Option<Duration> {
    // The first start creates the home; `lock::take` reports one that cannot be created.
    let _reported_there = context.home.create();
    let wait = home::starts::record(context.home.path(), lifetime.storm, clock::now())?;
    let starter = Starter {
        person: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        supervised: lifetime.supervised,
        replaces: how.replace,
    };
    if !is_storm(starter) {
        return None;
    }
    tracing::warn!(
        seconds = wait.as_secs(),
        "started too often: turns that were running when the gateway died wait before they are resumed; \
         gateway.respawn_storm.max_starts: 0 disables this"
    );
    Some(wait)
}

const fn is_storm(starter: Starter) -> bool {
    let Starter { person, supervised, replaces } = starter;
    !replaces && (supervised || !person)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_starts_by_a_machine_are_a_storm() {
        for (person, supervised, replaces, want) in [
            (false, false, false, true),
            (false, true, false, true),
            (true, true, false, true),
            (true, false, false, false),
            (false, false, true, false),
            (false, true, true, false),
        ] {
            let starter = Starter { person, supervised, replaces };
            assert_eq!(is_storm(starter), want, "{starter:?}");
        }
    }
}
