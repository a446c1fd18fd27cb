//! Answers that are still growing, as one chat sees them.
//!
//! The lane looks at the session's view at its own rhythm; chunks never push. Typing is shown while there
//! is no text to show, and ends by itself with the turn or its session, because the view says so.

use std::time::Duration;

use petasos_core::lane::Rhythm;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::text::may_become_silence_marker;
use petasos_core::{Millis, Route, SessionKey, TurnId, media};
use tokio::sync::watch;

use super::lane::LINGER;
use crate::sessions::view::View;

/// However small a gap was asked for, nobody reads faster.
const LEAST_GAP: Duration = Duration::from_millis(100);
/// A typing sign lasts five seconds on the shortest-lived platform.
const TYPING_EVERY: Duration = Duration::from_secs(4);
/// Fewer visible characters are not worth a message.
const WORTH_SHOWING: usize = 4;
/// Growing answers that one chat shows at the same time: the members and topics of a group share a lane.
const MOST: usize = 8;

#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) turn: TurnId,
    pub(crate) key: SessionKey,
    pub(crate) route: Route,
    view: watch::Receiver<View>,
    gap: Duration,
    pub(super) rhythm: Rhythm,
    pub(super) look_at: Millis,
    typing_at: Millis,
    /// What is visible now: which step, which text, under which id.
    pub(super) shown: Option<Shown>,
    /// A draft was refused: this turn is shown as messages.
    pub(super) draftless: bool,
}

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) step: u32,
    pub(super) text: String,
    /// `None`: a draft, which is no message.
    pub(super) message: Option<String>,
}

/// How much of a growing answer may be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Showing {
    Text,
    /// Only that somebody is typing.
    Typing,
}

/// What a look at the view asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The turn is over, or its session has gone.
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
        let look_at = now;
        let gap = gap.max(LEAST_GAP);
        let rhythm = Rhythm::new(gap);
        Self {
            turn,
            key,
            route,
            view,
            gap,
            rhythm,
            look_at,
            typing_at: look_at,
            shown: None,
            draftless: false,
        }
    }

    pub(super) fn look(&self, now: Millis, showing: Showing) -> Look {
        let view = self.view.borrow();
        let Some(live) = view.live.as_ref().filter(|live| live.turn == self.turn) else {
            return Look::Over;
        };
        if self.view.has_changed().is_err() {
            return Look::Over;
        }
        if !view.questions.is_empty() {
            // It is the reader's turn: nobody types here.
            return Look::Nothing;
        }
        // The files it names are no text: they come at its end.
        let text = media::growing(&live.text);
        let visible = text.trim();
        if showing == Showing::Typing || visible.is_empty() || may_become_silence_marker(visible) {
            let due = now >= self.typing_at || self.typing_at > now.after(TYPING_EVERY);
            return if due { Look::Typing } else { Look::Nothing };
        }
        if visible.chars().take(WORTH_SHOWING).count() < WORTH_SHOWING {
            return Look::Nothing;
        }
        let same = self.shown.as_ref().is_some_and(|shown| shown.step == live.step && shown.text == text);
        if same { Look::Nothing } else { Look::Show { step: live.step, text } }
    }

    pub(super) fn looked(&mut self, now: Millis) {
        self.look_at = now.after(self.gap);
    }

    pub(super) fn typed(&mut self, now: Millis) {
        self.typing_at = now.after(TYPING_EVERY);
    }

    /// The same for every draft of one step, and another for every other step.
    pub(super) fn draft_number(&self, step: u32) -> u32 {
        let turn = u32::try_from(self.turn.0 & 0x00ff_ffff).unwrap_or_default();
        ((turn << 6) | (step & 0x3f)) + 1
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

    /// Not before then. A platform may want us to wait for longer than any look is planned ahead.
    pub(super) fn put_off(&mut self, at: Millis, now: Millis) {
        self.look_at = at.min(now.after(LINGER));
    }

    /// A look further ahead than any we plan was planned before the clock was set back.
    fn is_due(&self, now: Millis) -> bool {
        self.look_at <= now || self.look_at > now.after(LINGER)
    }
}

/// The growing answers of one chat, the one looked at last at the end.
#[derive(Debug, Default)]
pub(super) struct Followed(Vec<Following>);

impl Followed {
    /// A session that goes on with its turn replaces what it said of it before. When there are too many,
    /// the one that has waited longest is shown only when it is complete.
    pub(super) fn add(&mut self, following: Following) {
        self.0.retain(|known| known.turn != following.turn);
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(following);
    }

    pub(super) fn next_look(&self) -> Option<Millis> {
        self.0.iter().map(|following| following.look_at).min()
    }

    pub(super) fn take_due(&mut self, now: Millis) -> Option<Following> {
        let at = self.0.iter().position(|following| following.is_due(now))?;
        Some(self.0.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::message::{ChatType, Delivery};
    use petasos_core::{Platform, Source};

    use super::*;
    use crate::sessions::view::Live;

    const NOW: Millis = Millis(1_000_000);

    fn following(turn: i64, text: &str) -> (watch::Sender<View>, Following) {
        let platform = Platform::parse("telegram").expect("known");
        let route = Route::back_to(&Source::new(platform, ChatType::Group, "-5"), Delivery::Push);
        let turn = TurnId(turn);
        let live = Some(Live { turn, step: 1, attempt: 1, text: text.into(), tools: vec![] });
        let (show, view) = watch::channel(View { live, ..View::default() });
        (show, Following::new(turn, SessionKey("k".into()), route, view, Duration::ZERO, NOW))
    }

    #[test]
    fn a_turn_is_over_when_its_session_has_gone() {
        let (show, following) = following(1, "a growing text");
        let soon = following.look_at;
        assert_eq!(
            following.look(soon, Showing::Text),
            Look::Show { step: 1, text: "a growing text".into() }
        );
        drop(show);
        assert_eq!(following.look(soon, Showing::Text), Look::Over);
    }

    #[test]
    fn a_look_that_is_put_off_is_not_due_at_once_however_long_the_platform_wants_us_to_wait() {
        for seconds in [1, 59, 60, 61, 300, 86_400] {
            let mut followed = Followed::default();
            let (_show, mut following) = following(1, "a growing text");
            following.put_off(NOW.after(Duration::from_secs(seconds)), NOW);
            followed.add(following);
            assert!(followed.take_due(NOW).is_none(), "{seconds} s");
            let next = followed.next_look().expect("a look");
            assert!(next > NOW && followed.take_due(next).is_some(), "{seconds} s");
        }
    }

    #[test]
    fn files_are_not_shown_while_an_answer_grows() {
        let (_show, following) = following(1, "Here is the report.\nMEDIA:/tmp/re");
        let want = Look::Show { step: 1, text: "Here is the report.".into() };
        assert_eq!(following.look(NOW, Showing::Text), want);
        let (_show, following) = self::following(1, "MEDIA:/tmp/report.pdf");
        assert_eq!(following.look(NOW, Showing::Text), Look::Typing);
    }

    #[test]
    fn somebody_types_all_the_while_when_the_text_is_not_shown() {
        let (_show, mut following) = following(1, "a growing text");
        let soon = following.look_at;
        assert_eq!(following.look(soon, Showing::Typing), Look::Typing);
        following.typed(soon);
        assert_eq!(following.look(soon, Showing::Typing), Look::Nothing);
        assert_eq!(following.look(soon.after(TYPING_EVERY), Showing::Typing), Look::Typing);
    }

    #[test]
    fn nobody_types_while_the_reader_is_asked_something() {
        let (show, following) = following(1, "");
        assert_eq!(following.look(NOW, Showing::Text), Look::Typing);
        let asked = crate::sessions::view::Asked { id: "q1".into(), text: "May I?".into(), buttons: vec![] };
        show.send_modify(|view| view.questions.push(asked));
        assert_eq!(following.look(NOW, Showing::Text), Look::Nothing);
        show.send_modify(|view| view.questions.clear());
        assert_eq!(following.look(NOW, Showing::Text), Look::Typing);
    }

    #[test]
    fn a_gap_of_zero_is_no_busy_loop() {
        let (_show, mut following) = following(1, "");
        following.looked(NOW);
        assert_eq!(following.look_at, NOW.after(LEAST_GAP));
    }

    #[test]
    fn a_chat_follows_several_turns_each_once_and_not_too_many() {
        let mut followed = Followed::default();
        let mut senders = vec![];
        for turn in [1, 2, 1].into_iter().chain(3..=9) {
            let (show, following) = following(turn, "");
            senders.push(show);
            followed.add(following);
        }
        let later = followed.next_look().expect("some");
        assert!(followed.take_due(later.before(Duration::from_millis(1))).is_none());
        let turns: Vec<_> = std::iter::from_fn(|| followed.take_due(later)).map(|it| it.turn.0).collect();
        assert_eq!(turns, [1, 3, 4, 5, 6, 7, 8, 9]);
    }
}
