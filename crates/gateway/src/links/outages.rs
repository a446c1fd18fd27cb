//! Tells the owner when a platform has been down for a while, and when it is back.
//!
//! Owns what was told. After a crash nobody remembers, so an outage that lasts may be told once more.

use std::collections::BTreeMap;

use petasos_core::journal::Write;
use petasos_core::link::Standing;
use petasos_core::outage::{News, Outage};
use petasos_core::outbox::Draft;
use petasos_core::{Millis, Route};

use crate::background::notifications::Notifications;
use crate::clock;
use crate::links::any_changed;
use crate::links::supervisor::LinkHandle;

pub(crate) async fn run(notifications: Notifications, mut links: Vec<LinkHandle>) {
    let patience = notifications.lifetime.outage_notice;
    let mut outages: BTreeMap<&'static str, Outage> = BTreeMap::new();
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        // As they are now; one that moves keeps its number.
        let homes = notifications.homes.routes();
        let reachable = reachable(&links, &homes);
        for link in &links {
            let outage = outages.remove(link.name).unwrap_or_default();
            let standing = link.link.borrow().standing();
            let (outage, news) = outage.step(standing, &reachable, patience, clock::now());
            outages.insert(link.name, outage);
            if let Some(news) = news {
                tell(&notifications, &homes, link.name, news).await;
            }
        }
        let due = outages.values().filter_map(|outage| outage.due(patience)).min();
        petasos_runtime::select! {
            () = notifications.stopper.stopped() => return,
            () = any_changed(&mut links) => {}
            () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => {}
        }
    }
}

/// The homes on platforms that are up.
fn reachable(links: &[LinkHandle], homes: &[Route]) -> Vec<usize> {
    let is_up = |route: &Route| {
        let link = links.iter().find(|link| link.name == route.platform.as_str());
        link.is_some_and(|link| link.link.borrow().standing() == Standing::Up)
    };
    (0..homes.len()).filter(|home| is_up(&homes[*home])).collect()
}

async fn tell(notifications: &Notifications, homes: &[Route], name: &'static str, news: News) {
    let text = words(name, &news, clock::now());
    let to = match news {
        News::Down { to, .. } => {
            tracing::error!(link = name, told = to.len(), "a platform has been down for a while");
            to
        }
        News::Back { to, .. } => {
            tracing::info!(link = name, told = to.len(), "a platform is back");
            to
        }
    };
    notifications.tell(to.into_iter().map(|home| homes[home].clone()).collect(), &text).await;
}

/// Enqueues a notice for each of these chats.
pub(crate) fn notices(to: &[Route], text: &str) -> Vec<Write> {
    to.iter().map(|route| Write::Owe(Draft::notice(route.clone(), text))).collect()
}

fn words(name: &str, news: &News, now: Millis) -> String {
    let minutes = |since: &Millis| now.since(*since).as_secs() / 60;
    match news {
        News::Down { since, .. } => format!(
            "📡 {name} has been down for {} min. I keep trying; `petasos links` on my machine shows why.",
            minutes(since)
        ),
        News::Back { since, .. } => {
            format!(
                "📡 {name} is back after {} min. What arrived meanwhile is being answered.",
                minutes(since)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_how_long() {
        let (since, now) = (Millis(0), Millis(200_000));
        let down = words("telegram", &News::Down { since, to: vec![] }, now);
        assert!(down.contains("telegram has been down for 3 min"), "{down}");
        let back = words("telegram", &News::Back { since, to: vec![] }, now);
        assert!(back.contains("telegram is back after 3 min"), "{back}");
    }
}
