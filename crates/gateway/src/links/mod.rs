//! What all links together mean for the gateway: started, deaf, or without a future.

pub(crate) mod channels;
pub(crate) mod directory;
pub(crate) mod idle;
pub mod network;
pub(crate) mod outages;
pub(crate) mod rate_limits;
pub(crate) mod relay;
pub(crate) mod supervisor;

use petasos_core::lifecycle::{Event, Leave};
use petasos_core::link::State;

use crate::lifecycle::config::Page;
use crate::lifecycle::gate::Gate;
use crate::lifecycle::shutdown::Stopper;
use crate::links::supervisor::LinkHandle;

/// Watches until the ways in are closed.
pub(crate) async fn watch(mut links: Vec<LinkHandle>, gate: Gate, page: Page, stopper: Stopper) {
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        judge(&links, &gate, page);
        petasos_runtime::select! {
            () = stopper.stopped() => return,
            () = any_changed(&mut links) => {}
        }
    }
}

/// Tries every link that a changed world may have helped, once.
pub(crate) async fn retry_all(links: &[LinkHandle]) {
    let wanted = |link: &&LinkHandle| match link.link.borrow().state {
        State::Connecting { .. } | State::Up { .. } | State::Waiting { .. } => true,
        State::Fatal { .. } | State::Paused => false,
    };
    for link in links.iter().filter(wanted) {
        // Closed only while we stop.
        let _ = link.retry().await;
    }
}

/// Resolves when any of them changes; never, if there are none.
pub(crate) async fn any_changed(links: &mut [LinkHandle]) {
    if links.is_empty() {
        return std::future::pending().await;
    }
    let changes = links.iter_mut().map(|link| Box::pin(link.link.changed()));
    let (changed, ..) = futures_util::future::select_all(changes).await;
    if changed.is_err() {
        // A supervisor has ended: so does everything else, and not because of us.
        std::future::pending().await
    }
}

fn judge(links: &[LinkHandle], gate: &Gate, page: Page) {
    let states: Vec<State> = links.iter().map(|link| link.link.borrow().state.clone()).collect();
    let up = states.iter().any(|state| matches!(state, State::Up { .. }));
    let undecided = links.iter().any(|link| {
        let link = link.link.borrow();
        matches!(link.state, State::Connecting { .. }) && link.trouble.is_none()
    });
    if let Some(reason) = hopeless(links, &states) {
        match (gate.has_started(), page) {
            (false, _) => drop(gate.leave(Leave::Unstartable, Some(reason))),
            (true, Page::None) => drop(gate.leave(Leave::Deserted, Some(reason))),
            (true, Page::Served) => {}
        }
    }
    if up || !undecided {
        gate.feed(Event::Deaf(!states.is_empty() && !up));
        gate.feed(Event::Started);
    }
}

/// Why no platform will ever connect, if so.
fn hopeless(links: &[LinkHandle], states: &[State]) -> Option<String> {
    let reasons: Vec<String> = links
        .iter()
        .zip(states)
        .filter_map(|(link, state)| match state {
            State::Fatal { failure } => Some(format!("{}: {}", link.name, failure.reason)),
            State::Connecting { .. } | State::Up { .. } | State::Waiting { .. } | State::Paused => None,
        })
        .collect();
    (!reasons.is_empty() && reasons.len() == states.len()).then(|| reasons.join("; "))
}
