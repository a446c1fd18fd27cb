//! Requests a drain and waits until no turn runs.

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_core::lifecycle::marker::{Marker, MarkerStatus};
use petasos_gateway::home::drain::{self, DrainRequest};
use petasos_runtime::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::wait::{
    Deadline, GatewayWait, WaitResult, detached, running_turns, title_with_turns, turn_summary, wait_briefly,
};
use super::{marker, max_age};
use crate::arguments::DrainRequestArguments;
use crate::commands::Context;
use crate::failure::{Failure, WRITABLE_ADVICE};
use crate::observe::{LifecycleStatus, Observation};
use crate::print::{self, WARNING, errln, now, outln, span, styled};

const RESUME_HINT: &str = "petasos resume ends the drain";

pub(super) async fn request(
    context: &Context,
    arguments: DrainRequestArguments,
) -> Result<ExitCode, Failure> {
    let home = &context.home;
    let before = marker(home).filter(|(_, status)| *status == MarkerStatus::Active);
    let request = merge_options(&arguments, before.map(|(marker, _)| marker).unwrap_or_default());
    let max_age = max_age(home);
    home.create().map_err(|error| marker_failure(home, &error))?;
    let marker = drain::write(home.path(), &request, now()).map_err(|error| marker_failure(home, &error))?;
    let (seen, confirmed) = wait_briefly(home, LifecycleStatus::is_draining).await;
    if !context.json {
        print_start(&seen, confirmed, max_age);
    }
    let shutting_down = seen.status().is_some_and(LifecycleStatus::is_shutting_down);
    let mut output = json!({
        "draining": true, "leaving": shutting_down, "requested_at": marker.requested_at, "principal": request.principal, "reason": request.reason,
        "suppress_notification": request.suppress_notification, "gateway_running": seen != Observation::NotRunning,
        "confirmed": confirmed, "active_agents": seen.status().map_or(0, |lifecycle| lifecycle.turns.len()),
    });
    if arguments.wait && seen != Observation::NotRunning {
        let renewal = MarkerRenewal::new(home, request, max_age);
        match wait_until_drained(context, renewal, confirmed, arguments.timeout).await? {
            Some(end) => end.record(context, &mut output),
            None => {
                return detached(context, &format!("Stopped waiting; the drain stays ({RESUME_HINT})"));
            }
        }
    }
    if context.json {
        print::json(&output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The new options; options that were not given are kept from the earlier marker.
fn merge_options(arguments: &DrainRequestArguments, before: Marker) -> DrainRequest {
    let reason = arguments.reason.clone().or(before.reason);
    DrainRequest {
        principal: principal(),
        suppress_notification: arguments.suppress_notification || before.suppress_notification,
        reason: reason.filter(|reason| !reason.trim().is_empty()),
    }
}

enum DrainEnd {
    Drained(LifecycleStatus),
    GatewayStopped,
}

struct Cancelled;

impl DrainEnd {
    fn record(&self, context: &Context, output: &mut Value) {
        let (left, running) = match self {
            Self::Drained(lifecycle) => (lifecycle.turns.len(), true),
            Self::GatewayStopped => (0, false),
        };
        output["drained"] = true.into();
        output["active_agents"] = left.into();
        output["gateway_running"] = running.into();
        if context.json {
            return;
        }
        match (running, left) {
            (true, 0) => outln!("Drained: no turn is running ({RESUME_HINT})"),
            (true, left) => {
                outln!("Drained, except for {} that the drain skips ({RESUME_HINT})", running_turns(left))
            }
            (false, _) => {
                outln!("The gateway has stopped; the next gateway starts drained ({RESUME_HINT})");
            }
        }
    }
}

/// Waits until no turn runs. `None` if Ctrl-C was pressed.
async fn wait_until_drained(
    context: &Context,
    mut renewal: MarkerRenewal<'_>,
    confirmed: bool,
    timeout: Option<Duration>,
) -> Result<Option<DrainEnd>, Failure> {
    let title = |seen: &Observation| match seen {
        Observation::Responding(_, lifecycle) => title_with_turns(lifecycle.display_state(), lifecycle),
        Observation::Unresponsive(_) | Observation::NotRunning => {
            "draining: the gateway does not answer".into()
        }
    };
    let mut drained_before = confirmed;
    let step = |seen: &Observation| {
        if !renewal.renew() {
            return Some(Err(Cancelled));
        }
        let lifecycle = match seen {
            Observation::NotRunning => return Some(Ok(DrainEnd::GatewayStopped)),
            Observation::Unresponsive(_) => return None,
            Observation::Responding(_, lifecycle) => lifecycle,
        };
        if lifecycle.is_draining() {
            drained_before = true;
        } else if drained_before {
            return Some(Err(Cancelled));
        } else {
            return None;
        }
        lifecycle.awaited().next().is_none().then(|| Ok(DrainEnd::Drained(lifecycle.clone())))
    };
    match GatewayWait::new(context, timeout, Deadline::Fixed).until(title, step).await {
        WaitResult::Done(Err(Cancelled)) => {
            let failure = Failure::new("the drain was cancelled while turns were running");
            Err(failure.next("petasos drain --wait requests it again"))
        }
        WaitResult::Done(Ok(end)) => Ok(Some(end)),
        WaitResult::TimedOut(seen) => {
            let state = match seen.status() {
                Some(lifecycle) => turn_summary(lifecycle),
                None => "the gateway does not answer, so a turn may be running".into(),
            };
            let what =
                format!("{state} after {}; the drain stays in effect", span(timeout.unwrap_or_default()));
            let next = "petasos drain --wait continues to wait, petasos drain skip SESSION skips a turn, petasos resume ends the drain";
            Err(Failure::new(what).next(next))
        }
        WaitResult::Interrupted => Ok(None),
    }
}

struct MarkerRenewal<'a> {
    home: &'a Home,
    request: DrainRequest,
    every: Duration,
    /// `None` if markers do not expire.
    due: Option<Instant>,
}

impl<'a> MarkerRenewal<'a> {
    fn new(home: &'a Home, request: DrainRequest, max_age: Duration) -> Self {
        let every = max_age / 4;
        Self { home, request, every, due: clock::monotonic().checked_add(every).filter(|_| !every.is_zero()) }
    }

    /// `false` if the marker was removed; it must not be written again.
    fn renew(&mut self) -> bool {
        let Some(there) = drain::read(self.home.path()) else { return false };
        let due = self.due.is_some_and(|due| clock::monotonic() >= due);
        // A later requester renews the marker itself.
        if due && there.principal.as_ref() == Some(&self.request.principal) {
            self.due = clock::monotonic().checked_add(self.every);
            if let Err(error) = drain::write(self.home.path(), &self.request, now()) {
                errln!("{} the drain could not be renewed: {error}", styled(WARNING, "warning:"));
            }
        }
        true
    }
}

fn print_start(seen: &Observation, confirmed: bool, max_age: Duration) {
    let expiry = if max_age.is_zero() {
        String::new()
    } else {
        format!("; without renewal it expires after {}", span(max_age))
    };
    match seen {
        Observation::NotRunning => {
            outln!(
                "No gateway is running on this home; the next gateway starts drained ({RESUME_HINT}{expiry})"
            )
        }
        Observation::Responding(_, lifecycle) if lifecycle.is_shutting_down() => {
            let state = lifecycle.display_state();
            let next = "the marker stays, and the next gateway starts drained; petasos resume removes it";
            outln!("The gateway is {state}; {next}");
        }
        Observation::Responding(_, lifecycle) if confirmed => {
            outln!("Draining: no new turns start, {} ({RESUME_HINT}{expiry})", turn_summary(lifecycle));
        }
        Observation::Responding(..) | Observation::Unresponsive(_) => {
            outln!("Drain requested ({RESUME_HINT}{expiry})");
            let what =
                "the gateway has not confirmed the drain within 2 s; petasos drain status shows its state";
            errln!("{} {what}", styled(WARNING, "warning:"));
        }
    }
}

fn principal() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.trim().is_empty());
    let id = rustix::process::getuid().as_raw().to_string();
    let listed = || name_of(&id, &std::fs::read_to_string("/etc/passwd").ok()?);
    let user = named("USER").or_else(|| named("LOGNAME")).or_else(listed);
    format!("petasos:{}", user.unwrap_or(id))
}

/// Looks up the name of a user id in `/etc/passwd`.
fn name_of(id: &str, passwd: &str) -> Option<String> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(id)).then(|| name.to_owned())
    };
    passwd.lines().find_map(of)
}

fn marker_failure(home: &Home, error: &std::io::Error) -> Failure {
    Failure::new(format!("the drain marker cannot be written to {}: {error}", home.path().display()))
        .next(WRITABLE_ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_earlier_options_unless_overridden() {
        let before = |suppress: bool| Marker {
            reason: Some("new disk".into()),
            suppress_notification: suppress,
            ..Marker::default()
        };
        for (reason, suppress, suppressed, want) in [
            (None, false, false, (Some("new disk"), false)),
            (None, false, true, (Some("new disk"), true)),
            (Some("old disk"), true, false, (Some("old disk"), true)),
            (Some(" "), false, false, (None, false)),
        ] {
            let arguments = DrainRequestArguments {
                wait: false,
                timeout: None,
                reason: reason.map(str::to_owned),
                suppress_notification: suppress,
            };
            let request = merge_options(&arguments, before(suppressed));
            assert_eq!((request.reason.as_deref(), request.suppress_notification), want, "{arguments:?}");
        }
    }

    #[test]
    fn looks_up_user_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nann:x:1000:1000::/home/ann:/bin/sh\n";
        for (id, want) in [("0", Some("root")), ("1000", Some("ann")), ("7", None), ("100", None)] {
            assert_eq!(name_of(id, passwd).as_deref(), want, "{id}");
        }
    }
}
