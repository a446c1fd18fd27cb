//! Asking for a drain, and waiting until nobody is at work.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use petasos_gateway::home::drain::{self, Ask};
use serde_json::{Value, json};

use super::super::Context;
use super::super::wait::{Patience, Wait, Waited, at_work, busy, soon, unwatched};
use super::max_age;
use crate::arguments::DrainAsk;
use crate::config::Home;
use crate::failure::{Failure, WRITABLE};
use crate::life::{Life, Sight};
use crate::print::{self, ODD, now, say, span, styled, warn_of};

const ENDS_IT: &str = "petasos resume ends it";

pub(super) async fn ask(context: &Context, wanted: DrainAsk) -> Result<ExitCode, Failure> {
    let home = &context.home;
    let ask = Ask {
        principal: principal(),
        suppress_notification: wanted.suppress_notification,
        reason: wanted.reason.filter(|reason| !reason.trim().is_empty()),
    };
    let max_age = max_age(home);
    home.create().map_err(|error| unwritten(home, &error))?;
    let marker = drain::write(home.path(), &ask, now()).map_err(|error| unwritten(home, &error))?;
    let (sight, confirmed) = soon(home, Life::is_draining).await;
    if !context.json {
        tell(&sight, confirmed, max_age);
    }
    let mut told = json!({
        "draining": true, "requested_at": marker.requested_at, "principal": ask.principal, "reason": ask.reason,
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
        Sight::Life(_, life) => busy("draining", life),
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
            let still = match sight.life().map(|life| life.awaited().count()) {
                Some(count) => at_work(count),
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
        Sight::Life(_, life) if confirmed => {
            let count = at_work(life.awaited().count());
            say!("draining: no new turns start, {count} ({ENDS_IT}{lasts})");
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
    let user = named("USER").or_else(|| named("LOGNAME"));
    format!("petasos:{}", user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()))
}

fn unwritten(home: &Home, error: &std::io::Error) -> Failure {
    Failure::new(format!("the drain marker cannot be written to {}: {error}", home.path().display()))
        .next(WRITABLE)
}
