//! Tells the owner when a platform has been down for a while and when it is back, and tries every link anew when the
//! machine has slept.
//!
//! Owns what was told. After a crash nobody remembers, so an outage that lasts may be told once more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use petasos_core::journal::Write;
use petasos_core::link::State;
use petasos_core::outage::{News, Outage};
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{Millis, Route};

use crate::clock;
use crate::links::any_changed;
use crate::session::Shell;
use crate::supervise::LinkHandle;

/// How often the two clocks are compared.
const COMPARE: Duration = Duration::from_secs(5);
/// They never drift apart by this much on their own: the machine slept, or its clock was set.
const JUMP: Duration = Duration::from_secs(30);

pub(crate) async fn run(shell: Arc<Shell>, mut links: Vec<LinkHandle>) {
    let mut outages: BTreeMap<&'static str, Outage> = BTreeMap::new();
    let (mut clocks, patience) = (Clocks::now(), shell.lifetime.outage_notice);
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        for link in &links {
            let outage = outages.entry(link.name).or_default();
            let (next, news) = outage.step(&link.link.borrow().state, patience, clock::now());
            *outage = next;
            if let Some(news) = news {
                tell(&shell, &links, link.name, news).await;
            }
        }
        let due = outages.values().filter_map(|outage| outage.due(patience)).min();
        tokio::select! {
            () = shell.stopper.stopped() => return,
            () = any_changed(&mut links) => {}
            () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => {}
            () = tokio::time::sleep(COMPARE) => {
                if clocks.jumped() {
                    tracing::warn!("the clock jumped; every link is tried anew");
                    retry(&links).await;
                }
            }
        }
    }
}

/// The wall clock goes on while the machine sleeps; the other one does not.
struct Clocks {
    wall: SystemTime,
    steady: Instant,
}

impl Clocks {
    fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// Since the last question.
    fn jumped(&mut self) -> bool {
        let now = Self::now();
        let steady = now.steady.duration_since(self.steady);
        let apart = match now.wall.duration_since(self.wall) {
            Ok(wall) => wall.abs_diff(steady),
            Err(back) => back.duration() + steady,
        };
        *self = now;
        apart > JUMP
    }
}

async fn retry(links: &[LinkHandle]) {
    for link in links.iter().filter(|link| link.link.borrow().state != State::Paused) {
        // Closed only while we stop.
        let _ = link.retry().await;
    }
}

/// To the home channels: of an outage where somebody can be reached, of its end also where it was.
async fn tell(shell: &Arc<Shell>, links: &[LinkHandle], name: &'static str, news: News) {
    let is_up = |route: &Route| {
        let link = links.iter().find(|link| link.name == route.platform.as_str());
        link.is_some_and(|link| matches!(link.link.borrow().state, State::Up { .. }))
    };
    let routes: Vec<Route> = shell.lifetime.home_routes().into_iter().filter(is_up).collect();
    let text = words(name, news, clock::now());
    match news {
        News::Down { .. } => {
            tracing::error!(link = name, told = routes.len(), "a platform has been down for a while")
        }
        News::Back { .. } => tracing::info!(link = name, told = routes.len(), "a platform is back"),
    }
    let lanes: Vec<String> = routes.iter().map(Route::lane).collect();
    let drafts = routes.into_iter().map(|route| Draft {
        route,
        session_key: None,
        turn: None,
        kind: Kind::Notice,
        text: text.clone(),
        buttons: vec![],
    });
    let owed: Vec<Write> = drafts.map(Write::Owe).collect();
    if let Err(error) = shell.db.write(move |tx| tx.apply(&owed, clock::now())).await {
        tracing::warn!(%error, "nobody could be told");
        return;
    }
    for lane in lanes {
        shell.deliver.due(lane).await;
    }
}

fn words(name: &str, news: News, now: Millis) -> String {
    match news {
        News::Down { since } => format!(
            "📡 {name} has been down for {} min. I keep trying; `petasos links` on my machine shows why.",
            now.since(since).as_secs() / 60
        ),
        News::Back { since } => {
            format!(
                "📡 {name} is back after {} min. What arrived meanwhile is being answered.",
                now.since(since).as_secs() / 60
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_go_on_together_have_not_jumped_and_others_have() {
        let mut clocks = Clocks::now();
        assert!(!clocks.jumped());
        for wall in [SystemTime::now() - Duration::from_secs(60), SystemTime::now() + Duration::from_secs(60)]
        {
            clocks.wall = wall;
            assert!(clocks.jumped() && !clocks.jumped());
        }
    }

    #[test]
    fn the_words_say_how_long() {
        let (since, now) = (Millis(0), Millis(200_000));
        assert!(words("telegram", News::Down { since }, now).contains("telegram has been down for 3 min"));
        assert!(words("telegram", News::Back { since }, now).contains("telegram is back after 3 min"));
    }
}
