//! Too many starts in a row: somebody starts us again and again, and waiting is the kindest thing to do.
//!
//! Owns the ledger of starts for a moment, and nothing while it waits: the home stays free for others. A crash leaves a
//! start that was counted.

use std::io::IsTerminal;

use petasos_gateway::{Lifetime, clock, home};

use super::super::Context;
use crate::arguments::Run;
use crate::print;
use crate::signals::Signals;

/// Who would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Starter {
    /// At a terminal.
    person: bool,
    supervised: bool,
    /// Somebody wants the place of another gateway, which is no accident.
    replaces: bool,
}

/// Counts this start, and waits if there were too many. `false`: we were asked to leave meanwhile.
pub(super) async fn wait_out(
    context: &Context,
    lifetime: &Lifetime,
    how: Run,
    signals: &mut Signals,
) -> bool {
    let now = clock::now();
    // The first start makes the home; one that cannot be made is told by whoever takes it.
    let _told_there = context.home.create();
    let Some(wait) = home::starts::record(context.home.path(), lifetime.storm, now) else { return true };
    let starter = Starter {
        person: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        supervised: lifetime.supervised,
        replaces: how.replace,
    };
    if !must_wait(starter) {
        return true;
    }
    let until = print::time_of_day(now.after(wait));
    tracing::warn!(
        seconds = wait.as_secs(),
        "started too often: waiting until {until}; Ctrl-C gives up; \
         gateway.respawn_storm.max_starts: 0 switches this off"
    );
    tokio::select! {
        () = tokio::time::sleep(wait) => true,
        signal = signals.next() => {
            tracing::warn!(signal = signal.as_str(), "gave up waiting; nothing was started");
            false
        }
    }
}

const fn must_wait(starter: Starter) -> bool {
    let Starter { person, supervised, replaces } = starter;
    !replaces && (supervised || !person)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_wait_who_may_be_a_machine() {
        for (person, supervised, replaces, want) in [
            (false, false, false, true),
            (false, true, false, true),
            (true, true, false, true),
            (true, false, false, false),
            (false, false, true, false),
            (false, true, true, false),
        ] {
            let starter = Starter { person, supervised, replaces };
            assert_eq!(must_wait(starter), want, "{starter:?}");
        }
    }
}
