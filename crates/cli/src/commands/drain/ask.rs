//! Asking for a drain, and waiting until nobody is at work.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use petasos_config::Home;
use petasos_core::lifecycle::marker::{Marker, Standing};
use petasos_gateway::home::drain::{self, Ask};
use serde_json::{Value, json};

use super::super::Context;
use super::super::wait::{Patience, Wait, Waited, at_work, busy, everybody, soon, unwatched};
use super::{marker, max_age};
use crate::arguments::DrainAsk;
use crate::failure::{Failure, WRITABLE};
use crate::life::{Life, Sight};
use crate::print::{self, ODD, now, say, span, styled, warn_of};

const ENDS_IT: &str = "petasos resume ends it";

pub(super) async fn ask(context: &Context, wanted: DrainAsk) -> Result<ExitCode, Failure> {
    let home = &context.home;
    let before = marker(home).filter(|(_, standing)| *standing == Standing::Active);
    let ask = asked(&wanted, before.map(|(marker, _)| marker).unwrap_or_default());
    let max_age = max_age(home);
    home.create().map_err(|error| unwritten(home, &error))?;
    let marker = drain::write(home.path(), &ask, now()).map_err(|error| unwritten(home, &error))?;
    let (sight, confirmed) = soon(home, Life::is_draining).await;
    if !context.json {
        tell(&sight, confirmed, max_age);
    }
    let leaving = sight.life().is_some_and(Life::is_leaving);
    let mut told = json!({
        "draining": true, "leaving": leaving, "requested_at": marker.requested_at, "principal": ask.principal, "reason": ask.reason,
        "suppress_notification": ask.suppress_notification, "gateway_running": sight != Sight::Nobody,
        "confirmed": confirmed, "active_agents": sight.life().map_or(0, |life| life.holders.len()),
    });
    if wanted.wait && sight != Sight::Nobody {
        let keeper = Keeper::new(home, ask, max_age);
        match quiet(context, keeper, confirmed, wanted.timeout).await? {
            Some(end) => end.tell(context, &mut told),
            None => {
                return unwatched(context, &format!("not watching any more; the drain stays ({ENDS_IT})"));
            }
        }
    }
    if context.json {
        print::json(&told)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said now, and otherwise what was said before.
fn asked(wanted: &DrainAsk, before: Marker) -> Ask {
    let reason = wanted.reason.clone().or(before.reason);
    Ask {
        principal: principal(),
        suppress_notification: wanted.suppress_notification || before.suppress_notification,
        reason: reason.filter(|reason| !reason.trim().is_empty()),
    }
}

/// How the waiting came out.
enum End {
    Quiet(Life),
    /// The gateway is gone, and with it everybody who was at work.
    Left,
}

/// Somebody else ended the drain.
struct TakenBack;

impl End {
    fn tell(&self, context: &Context, told: &mut Value) {
        let (left, running) = match self {
            Self::Quiet(life) => (life.holders.len(), true),
            Self::Left => (0, false),
        };
        told["drained"] = true.into();
        told["active_agents"] = left.into();
        told["gateway_running"] = running.into();
        if context.json {
            return;
        }
        match (running, left) {
            (true, 0) => say!("drained: nobody is at work ({ENDS_IT})"),
            (true, left) => say!("drained, except for {} that nobody waits for ({ENDS_IT})", at_work(left)),
            (false, _) => {
                say!("the gateway has stopped; the next one drains from its start on ({ENDS_IT})");
            }
        }
    }
}

/// Waits until nobody is at work. `None`: the person does not want to wait any more.
async fn quiet(
    context: &Context,
    mut keeper: Keeper<'_>,
    confirmed: bool,
    timeout: Option<Duration>,
) -> Result<Option<End>, Failure> {
    let title = |sight: &Sight| match sight {
        Sight::Life(_, life) => busy(life.headline(), life),
        Sight::Silent(_) | Sight::Nobody => "draining: the gateway does not answer".into(),
    };
    let mut drained_before = confirmed;
    let step = |sight: &Sight| {
        if !keeper.keep() {
            return Some(Err(TakenBack));
        }
        let life = match sight {
            Sight::Nobody => return Some(Ok(End::Left)),
            Sight::Silent(_) => return None,
            Sight::Life(_, life) => life,
        };
        match life.is_draining() {
            true => drained_before = true,
            false if drained_before => return Some(Err(TakenBack)),
            false => return None,
        }
        life.awaited().next().is_none().then(|| Ok(End::Quiet(life.clone())))
    };
    match Wait::new(context, timeout, Patience::Fixed).until(title, step).await {
        Waited::Done(Err(TakenBack)) => {
            let failure = Failure::new("the drain was taken back while sessions were at work");
            Err(failure.next("petasos drain --wait asks for it again"))
        }
        Waited::Done(Ok(end)) => Ok(Some(end)),
        Waited::Late(sight) => {
            let still = match sight.life() {
                Some(life) => everybody(life),
                None => "the gateway does not answer, so perhaps somebody at work".into(),
            };
            let what = format!("still {still} after {}; the drain stays", span(timeout.unwrap_or_default()));
            let next = "petasos drain --wait waits on, petasos drain skip SESSION gives up on one, petasos resume ends it";
            Err(Failure::new(what).next(next))
        }
        Waited::Interrupted => Ok(None),
    }
}

/// Renews the marker for as long as somebody waits for it.
struct Keeper<'a> {
    home: &'a Home,
    ask: Ask,
    every: Duration,
    /// `None`: markers do not grow old here.
    due: Option<Instant>,
}

impl<'a> Keeper<'a> {
    fn new(home: &'a Home, ask: Ask, max_age: Duration) -> Self {
        let every = max_age / 4;
        Self { home, ask, every, due: Instant::now().checked_add(every).filter(|_| !every.is_zero()) }
    }

    /// `false`: somebody has removed the marker, and it must not come back by us.
    fn keep(&mut self) -> bool {
        let Some(there) = drain::read(self.home.path()) else { return false };
        let due = self.due.is_some_and(|due| Instant::now() >= due);
        // Whoever has asked after us keeps the marker alive now.
        if due && there.principal.as_ref() == Some(&self.ask.principal) {
            self.due = Instant::now().checked_add(self.every);
            if let Err(error) = drain::write(self.home.path(), &self.ask, now()) {
                warn_of!("{} the drain could not be renewed: {error}", styled(ODD, "warning:"));
            }
        }
        true
    }
}

fn tell(sight: &Sight, confirmed: bool, max_age: Duration) {
    let lasts = match max_age.is_zero() {
        true => String::new(),
        false => format!("; unless renewed, it ends by itself after {}", span(max_age)),
    };
    match sight {
        Sight::Nobody => {
            say!("no gateway runs on this home; the next one drains from its start on ({ENDS_IT}{lasts})")
        }
        Sight::Life(_, life) if life.is_leaving() => {
            let leaving = life.headline();
            let next = "the marker stays, and the next one starts drained; petasos resume removes it";
            say!("the gateway is {leaving}; {next}");
        }
        Sight::Life(_, life) if confirmed => {
            say!("draining: no new turns start, {} ({ENDS_IT}{lasts})", everybody(life));
        }
        Sight::Life(..) | Sight::Silent(_) => {
            say!("asked for a drain ({ENDS_IT}{lasts})");
            let what =
                "the gateway has not said within 2 s that it drains; petasos drain status shows its state";
            warn_of!("{} {what}", styled(ODD, "warning:"));
        }
    }
}

/// Who asks, as far as this process knows.
fn principal() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.trim().is_empty());
    let id = rustix::process::getuid().as_raw().to_string();
    let listed = || name_of(&id, &std::fs::read_to_string("/etc/passwd").ok()?);
    let user = named("USER").or_else(|| named("LOGNAME")).or_else(listed);
    format!("petasos:{}", user.unwrap_or(id))
}

/// The name of a user in the list of those whom this machine knows itself.
fn name_of(id: &str, passwd: &str) -> Option<String> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(id)).then(|| name.to_owned())
    };
    passwd.lines().find_map(of)
}

fn unwritten(home: &Home, error: &std::io::Error) -> Failure {
    Failure::new(format!("the drain marker cannot be written to {}: {error}", home.path().display()))
        .next(WRITABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_stays_unless_it_is_said_anew() {
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
            let wanted = DrainAsk {
                wait: false,
                timeout: None,
                reason: reason.map(str::to_owned),
                suppress_notification: suppress,
            };
            let ask = asked(&wanted, before(suppressed));
            assert_eq!((ask.reason.as_deref(), ask.suppress_notification), want, "{wanted:?}");
        }
    }

    #[test]
    fn a_user_is_known_by_name_where_the_machine_knows_it() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nann:x:1000:1000::/home/ann:/bin/sh\n";
        for (id, want) in [("0", Some("root")), ("1000", Some("ann")), ("7", None), ("100", None)] {
            assert_eq!(name_of(id, passwd).as_deref(), want, "{id}");
        }
    }
}
