//! An answer that is still growing, as one chat sees it.
//!
//! The lane looks at the session's view at its own rhythm; chunks never push. Typing is shown while there
//! is no text yet, and ends by itself with the turn, because the view says so.

use std::time::Duration;

use petasos_core::lane::Rhythm;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::text::may_become_silence_marker;
use petasos_core::{Millis, Route, SessionKey, TurnId};
use tokio::sync::watch;

use crate::view::View;

/// How long a turn may be silent before its chat is told that somebody is typing.
const FIRST_LOOK: Duration = Duration::from_millis(300);
/// A typing sign lasts five seconds on the shortest-lived platform.
const TYPING_EVERY: Duration = Duration::from_secs(4);
/// Fewer visible characters are not worth a message.
const WORTH_SHOWING: usize = 4;

#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) turn: TurnId,
    pub(crate) key: SessionKey,
    pub(crate) route: Route,
    view: watch::Receiver<View>,
    pub(super) rhythm: Rhythm,
    pub(super) look_at: Millis,
    typing_at: Millis,
    /// What is visible now: which step, which text, under which id.
    pub(super) shown: Option<Shown>,
}

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) step: u32,
    pub(super) text: String,
    pub(super) message: String,
}

/// What a look at the view asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The turn is over.
    Over,
    Nothing,
    Typing,
    Show {
        step: u32,
        text: String,
    },
}

impl Following {
    pub(crate) fn new(
        turn: TurnId,
        key: SessionKey,
        route: Route,
        view: watch::Receiver<View>,
        gap: Duration,
        now: Millis,
    ) -> Self {
        let look_at = now.after(FIRST_LOOK);
        Self { turn, key, route, view, rhythm: Rhythm::new(gap), look_at, typing_at: look_at, shown: None }
    }

    pub(super) fn look(&self, now: Millis) -> Look {
        let view = self.view.borrow();
        let Some(live) = view.live.as_ref().filter(|live| live.turn == self.turn) else {
            return Look::Over;
        };
        let visible = live.text.trim();
        if visible.is_empty() || may_become_silence_marker(visible) {
            return if now >= self.typing_at { Look::Typing } else { Look::Nothing };
        }
        if visible.chars().take(WORTH_SHOWING).count() < WORTH_SHOWING {
            return Look::Nothing;
        }
        let same =
            self.shown.as_ref().is_some_and(|shown| shown.step == live.step && shown.text == live.text);
        if same { Look::Nothing } else { Look::Show { step: live.step, text: live.text.clone() } }
    }

    pub(super) fn typed(&mut self, now: Millis) {
        self.typing_at = now.after(TYPING_EVERY);
    }

    /// A streaming item for one step of the turn.
    pub(super) fn draft(&self, step: u32) -> Draft {
        Draft {
            route: self.route.clone(),
            session_key: Some(self.key.clone()),
            turn: Some((self.turn, step)),
            kind: Kind::Answer,
            text: String::new(),
            buttons: vec![],
        }
    }
}
