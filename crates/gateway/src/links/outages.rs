//! Notifies the owner when a platform has been down for a while, and when it has recovered.
//!
//! Owns which outages were announced. A crash forgets that, so an ongoing outage may be announced again.

use std::collections::BTreeMap;

use petasos_core::journal::Write;
use petasos_core::link::Availability;
use petasos_core::outage::{Outage, OutageNotice};
use petasos_core::outbox::Draft;
use petasos_core::{Millis, Route};

use crate::background::notifications::Notifications;
use crate::clock;
use crate::links::any_changed;
use crate::links::supervisor::LinkHandle;

pub(crate) async fn run(notifications: Notifications, mut links: Vec<LinkHandle>) {
    let threshold = notifications.lifetime.outage_notice;
    let mut outages: BTreeMap<&'static str, Outage> = BTreeMap::new();
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        // The current homes; a changed home keeps its index.
        let homes = notifications.homes.routes();
        let reachable = reachable(&links, &homes);
        for link in &links {
            let outage = outages.remove(link.name).unwrap_or_default();
            let availability = link.link.borrow().availability();
            let (outage, news) = outage.step(availability, &reachable, threshold, clock::now());
            outages.insert(link.name, outage);
            if let Some(news) = news {
                notify_homes(&notifications, &homes, link.name, news).await;
            }
        }
        let due = outages.values().filter_map(|outage| outage.due(threshold)).min();
        petasos_runtime::select! {
            () = notifications.shutdown.stopped() => return,
            () = any_changed(&mut links) => {}
            () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => {}
        }
    }
}

/// Indexes of homes on connected platforms.
fn reachable(links: &[LinkHandle], homes: &[Route]) -> Vec<usize> {
    let is_up = |route: &Route| {
        let link = links.iter().find(|link| link.name == route.platform.as_str());
        link.is_some_and(|link| link.link.borrow().availability() == Availability::Up)
    };
    (0..homes.len()).filter(|home| is_up(&homes[*home])).collect()
}

async fn notify_homes(
    notifications: &Notifications,
    homes: &[Route],
    name: &'static str,
    news: OutageNotice,
) {
    let text = notice_text(name, &news, clock::now());
    let to = match news {
        OutageNotice::Down { to, .. } => {
            tracing::error!(link = name, notified = to.len(), "a platform has been down for a while");
            to
        }
        OutageNotice::Recovered { to, .. } => {
            tracing::info!(link = name, notified = to.len(), "a platform is back");
            to
        }
    };
    notifications.notify(to.into_iter().map(|home| homes[home].clone()).collect(), &text).await;
}

/// Enqueues a notice for each of these chats.
pub(crate) fn notices(to: &[Route], text: &str) -> Vec<Write> {
    to.iter().map(|route| Write::Enqueue(Draft::notice(route.clone(), text))).collect()
}

fn notice_text(name: &str, news: &OutageNotice, now: Millis) -> String {
    let minutes = |since: &Millis| now.since(*since).as_secs() / 60;
    match news {
        OutageNotice::Down { since, .. } => crate::notices::links::outage(name, minutes(since)),
        OutageNotice::Recovered { since, .. } => crate::notices::links::recovered(name, minutes(since)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_state_the_duration() {
        let since = Millis(0);
        let now = Millis(200_000);
        let down = notice_text("telegram", &OutageNotice::Down { since, to: vec![] }, now);
        assert!(down.contains("telegram has been down for 3 min"), "{down}");
        let back = notice_text("telegram", &OutageNotice::Recovered { since, to: vec![] }, now);
        assert!(back.contains("telegram is back after 3 min"), "{back}");
    }
}
