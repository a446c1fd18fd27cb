//! `/platform`: lists, retries and pauses platform links.

use petasos_core::Millis;
use petasos_core::journal::MessageOutcome;
use petasos_core::link::{Failure, Link, State};
use petasos_store::PendingMessage;

use crate::clock;
use crate::links::supervisor::LinkHandle;
use crate::notices::commands as notices;
use crate::notices::links::state;
use crate::sessions::{SessionError, SessionTask};

impl SessionTask {
    pub(in crate::sessions) async fn platform(
        &mut self,
        pending: &PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        let links = self.handles.lifecycle.links.get().map(Vec::as_slice).unwrap_or_default();
        let (text, outcome) = match args.split_whitespace().collect::<Vec<_>>()[..] {
            [] | ["list"] => (list(links), MessageOutcome::Answered),
            ["retry" | "resume", name] => apply(links, name, LinkAction::Retry).await,
            ["pause", name] => apply(links, name, LinkAction::Pause).await,
            _ => (notices::PLATFORM_USAGE.into(), MessageOutcome::Refused),
        };
        self.reply(pending, text, outcome).await
    }
}

#[derive(Clone, Copy)]
enum LinkAction {
    Retry,
    Pause,
}

async fn apply(links: &[LinkHandle], name: &str, action: LinkAction) -> (String, MessageOutcome) {
    let Some(link) = links.iter().find(|link| link.name == name.to_lowercase()) else {
        return (notices::unknown_platform(name, &list(links)), MessageOutcome::Refused);
    };
    let done = match action {
        LinkAction::Retry => link.retry().await.map(|()| notices::platform_retrying(name)),
        LinkAction::Pause => link.pause().await.map(|()| notices::platform_paused(name)),
    };
    match done {
        Ok(text) => (text, MessageOutcome::Answered),
        Err(error) => (notices::platform_failed(error), MessageOutcome::Refused),
    }
}

fn list(links: &[LinkHandle]) -> String {
    if links.is_empty() {
        return notices::NO_PLATFORMS.into();
    }
    let line = |link: &LinkHandle| format!("{}: {}", link.name, describe(&link.link.borrow(), clock::now()));
    notices::platforms(&links.iter().map(line).collect::<Vec<_>>())
}

fn describe(link: &Link, now: Millis) -> String {
    let heard = match link.last_inbound {
        Some(at) => state::heard(now.since(at).as_secs()),
        None => state::NEVER_HEARD.to_owned(),
    };
    match &link.state {
        State::Connecting { .. } => match &link.retry_reason {
            Some(code) => state::cannot_connect(code, &heard),
            None => state::connecting(&heard),
        },
        State::Up { .. } => {
            let behind = link.lag_ms.map(|ms| ms / 1000);
            let connected = state::connected(&heard, link.retry_reason.as_deref(), behind);
            let outages: String =
                link.partial_outages.iter().map(|it| state::without(&it.part, &it.code)).collect();
            connected + &outages
        }
        State::Waiting { until, slow, failure } => {
            state::waiting(*slow, code_of(failure), until.since(now).as_secs(), link.attempts, &heard)
        }
        State::Fatal { failure } => state::fatal(code_of(failure), &heard),
        State::Paused => state::paused(&heard),
    }
}

fn code_of(failure: &Failure) -> String {
    format!("{}, {}", failure.code, failure.class.as_str())
}
