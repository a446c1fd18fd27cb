//! `/platform`: how the platforms are, from any of them.

use petasos_core::Millis;
use petasos_core::journal::Outcome;
use petasos_core::link::{Link, State};
use petasos_store::Pending;

use crate::clock;
use crate::links::supervisor::LinkHandle;
use crate::sessions::{Ended, Session};

impl Session {
    pub(in crate::sessions) async fn platform(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let links = self.handles.lifecycle.links.get().map(Vec::as_slice).unwrap_or_default();
        let (text, outcome) = match args.split_whitespace().collect::<Vec<_>>()[..] {
            [] | ["list"] => (listed(links), Outcome::Answered),
            ["retry" | "resume", name] => asked(links, name, Wish::Retry).await,
            ["pause", name] => asked(links, name, Wish::Pause).await,
            _ => (
                "Say what to do with which: /platform retry telegram, /platform pause telegram".into(),
                Outcome::Refused,
            ),
        };
        self.answer(pending, text, outcome).await
    }
}

#[derive(Clone, Copy)]
enum Wish {
    Retry,
    Pause,
}

async fn asked(links: &[LinkHandle], name: &str, wish: Wish) -> (String, Outcome) {
    let Some(link) = links.iter().find(|link| link.name == name.to_lowercase()) else {
        return (format!("There is no platform {name} here.\n{}", listed(links)), Outcome::Refused);
    };
    let done = match wish {
        Wish::Retry => link.retry().await.map(|()| format!("📡 Trying {name} now.")),
        Wish::Pause => {
            link.pause().await.map(|()| format!("⏸ {name} is paused. /platform retry {name} brings it back."))
        }
    };
    match done {
        Ok(text) => (text, Outcome::Answered),
        Err(error) => (format!("⚠️ {error}."), Outcome::Refused),
    }
}

fn listed(links: &[LinkHandle]) -> String {
    if links.is_empty() {
        return "📡 No platform is configured; there are the page and the terminal.".into();
    }
    let line = |link: &LinkHandle| format!("{}: {}", link.name, described(&link.link.borrow(), clock::now()));
    format!("📡 Platforms\n{}", links.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Without addresses and other details that are not for a chat.
fn described(link: &Link, now: Millis) -> String {
    let heard = match link.last_inbound {
        Some(at) => format!("last heard {} s ago", now.since(at).as_secs()),
        None => "never heard".into(),
    };
    match &link.state {
        State::Connecting { .. } => match &link.trouble {
            Some(code) => format!("has trouble connecting ({code}), {heard}"),
            None => format!("connecting, {heard}"),
        },
        State::Up { .. } => {
            let trouble = link.trouble.as_ref().map(|code| format!(", has trouble ({code})"));
            let behind = link.behind_ms.map(|ms| format!(", {} s behind", ms / 1000));
            let lacks: String =
                link.lacks.iter().map(|it| format!(", without {} ({})", it.what, it.code)).collect();
            let (trouble, behind) = (trouble.unwrap_or_default(), behind.unwrap_or_default());
            format!("connected, {heard}{trouble}{behind}{lacks}")
        }
        State::Waiting { until, slow, failure } => {
            let pace = if *slow { "paused (slow probe)" } else { "down" };
            let (code, class, wait) = (&failure.code, failure.class.as_str(), until.since(now).as_secs());
            format!("{pace} ({code}, {class}), next try in {wait} s, {} failed, {heard}", link.attempts)
        }
        State::Fatal { failure } => {
            let (code, class) = (&failure.code, failure.class.as_str());
            format!("stopped ({code}, {class}), {heard}; it needs its owner")
        }
        State::Paused => format!("paused, {heard}"),
    }
}
