//! Links to platforms, and what their states together mean for the lifecycle of the gateway.

pub(crate) mod channels;
pub(crate) mod directory;
pub(crate) mod idle;
pub mod network;
pub(crate) mod outages;
pub(crate) mod rate_limits;
pub(crate) mod relay;
pub(crate) mod supervisor;

use petasos_core::lifecycle::{Event, ShutdownReason};
use petasos_core::link::State;

use crate::lifecycle::config::LocalService;
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::supervisor::LinkHandle;

pub(crate) async fn watch(
    mut links: Vec<LinkHandle>,
    gate: AcceptGate,
    page: LocalService,
    shutdown: ShutdownHandle,
) {
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        update_lifecycle(&links, &gate, page);
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = any_changed(&mut links) => {}
        }
    }
}

/// Reconnects every link once, except those that are paused or failed for good.
pub(crate) async fn retry_all(links: &[LinkHandle]) {
    let wanted = |link: &&LinkHandle| match link.link.borrow().state {
        State::Connecting { .. } | State::Up { .. } | State::Waiting { .. } => true,
        State::Fatal { .. } | State::Paused => false,
    };
    for link in links.iter().filter(wanted) {
        let _ = link.retry().await;
    }
}

/// Resolves when any link changes; never if there are none.
pub(crate) async fn any_changed(links: &mut [LinkHandle]) {
    if links.is_empty() {
        return std::future::pending().await;
    }
    let changes = links.iter_mut().map(|link| Box::pin(link.link.changed()));
    let (changed, ..) = futures_util::future::select_all(changes).await;
    if changed.is_err() {
        // A supervisor ends only during shutdown.
        std::future::pending().await
    }
}

fn update_lifecycle(links: &[LinkHandle], gate: &AcceptGate, page: LocalService) {
    let states: Vec<State> = links.iter().map(|link| link.link.borrow().state.clone()).collect();
    let up = states.iter().any(|state| matches!(state, State::Up { .. }));
    let undecided = links.iter().any(|link| {
        let link = link.link.borrow();
        matches!(link.state, State::Connecting { .. }) && link.retry_reason.is_none()
    });
    if let Some(reason) = fatal_reason(links, &states) {
        if !gate.has_started() {
            gate.shut_down(ShutdownReason::Unstartable, Some(reason));
        } else if page == LocalService::None {
            gate.shut_down(ShutdownReason::AllPlatformsLost, Some(reason));
        }
    }
    if up || !undecided {
        gate.apply(Event::AllDisconnected(!states.is_empty() && !up));
        gate.apply(Event::Started);
    }
}

/// Why no platform can ever connect. `None`: at least one can.
fn fatal_reason(links: &[LinkHandle], states: &[State]) -> Option<String> {
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
