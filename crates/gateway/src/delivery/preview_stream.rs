//! Streamed answers of one chat, and when to show their next preview.
//!
//! The lane polls the session's view at its own pace; model chunks never push. The typing indicator is shown while there is no text
//! and stops with the turn or its session, because the view says so.

use std::time::Duration;

use petasos_core::lane::PreviewThrottle;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::text::may_become_silence_marker;
use petasos_core::{Millis, Route, SessionKey, TurnId, media};
use tokio::sync::watch;

use super::lane::LINGER;
use crate::sessions::view::SessionView;

/// Lower bound of the configured preview interval.
const MIN_GAP: Duration = Duration::from_millis(100);
/// The shortest-lived typing indicator of all platforms lasts five seconds.
const TYPING_EVERY: Duration = Duration::from_secs(4);
const MIN_VISIBLE: usize = 4;
/// Concurrent previews in one chat: members and topics of a group share a lane.
const MAX_STREAMS: usize = 8;

#[derive(Debug)]
pub(crate) struct PreviewStream {
    pub(crate) turn: TurnId,
    pub(crate) key: SessionKey,
    pub(crate) route: Route,
    view: watch::Receiver<SessionView>,
    gap: Duration,
    pub(super) rhythm: PreviewThrottle,
    pub(super) next_poll_at: Millis,
    next_typing_at: Millis,
    /// The preview in the chat: step, text, message id.
    pub(super) shown: Option<ShownPreview>,
    /// A draft was refused: this turn uses messages.
    pub(super) draftless: bool,
}

#[derive(Debug)]
pub(super) struct ShownPreview {
    pub(super) step: u32,
    pub(super) text: String,
    /// `None` for a draft.
    pub(super) message: Option<String>,
}

/// How much of a streamed answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviewMode {
    Text,
    Typing,
}

/// The next action of the lane after a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PreviewUpdate {
    /// The turn has ended, or its session has gone.
    Ended,
    Nothing,
    Typing,
    Show {
        step: u32,
        text: String,
    },
}

impl PreviewStream {
    pub(crate) fn new(
        turn: TurnId,
        key: SessionKey,
        route: Route,
        view: watch::Receiver<SessionView>,
        gap: Duration,
        now: Millis,
    ) -> Self {
        let next_poll_at = now;
        let gap = gap.max(MIN_GAP);
        let rhythm = PreviewThrottle::new(gap);
        Self {
            turn,
            key,
            route,
            view,
            gap,
            rhythm,
            next_poll_at,
            next_typing_at: next_poll_at,
            shown: None,
            draftless: false,
        }
    }

    pub(super) fn poll(&self, now: Millis, showing: PreviewMode) -> PreviewUpdate {
        let view = self.view.borrow();
        let Some(live) = view.live.as_ref().filter(|live| live.turn == self.turn) else {
            return PreviewUpdate::Ended;
        };
        if self.view.has_changed().is_err() {
            return PreviewUpdate::Ended;
        }
        if !view.questions.is_empty() {
            // The turn waits for a person.
            return PreviewUpdate::Nothing;
        }
        // Attachment tags are not shown; the files are sent at the end.
        let text = media::preview_text(&live.text);
        let visible = text.trim();
        if showing == PreviewMode::Typing || visible.is_empty() || may_become_silence_marker(visible) {
            let due = now >= self.next_typing_at || self.next_typing_at > now.after(TYPING_EVERY);
            return if due { PreviewUpdate::Typing } else { PreviewUpdate::Nothing };
        }
        if visible.chars().take(MIN_VISIBLE).count() < MIN_VISIBLE {
            return PreviewUpdate::Nothing;
        }
        let same = self.shown.as_ref().is_some_and(|shown| shown.step == live.step && shown.text == text);
        if same { PreviewUpdate::Nothing } else { PreviewUpdate::Show { step: live.step, text } }
    }

    pub(super) fn schedule_next_poll(&mut self, now: Millis) {
        self.next_poll_at = now.after(self.gap);
    }

    pub(super) fn typing_sent(&mut self, now: Millis) {
        self.next_typing_at = now.after(TYPING_EVERY);
    }

    /// One draft id per step of the turn.
    pub(super) fn draft_number(&self, step: u32) -> u32 {
        let turn = u32::try_from(self.turn.0 & 0x00ff_ffff).unwrap_or_default();
        ((turn << 6) | (step & 0x3f)) + 1
    }

    /// The outbox item of one step, still streaming.
    pub(super) fn outbox_draft(&self, step: u32) -> Draft {
        Draft {
            route: self.route.clone(),
            session_key: Some(self.key.clone()),
            turn: Some((self.turn, step)),
            kind: Kind::Answer,
            text: String::new(),
            buttons: vec![],
        }
    }

    /// Delays the next poll. A platform's wait may exceed the longest planned delay.
    pub(super) fn postpone(&mut self, at: Millis, now: Millis) {
        self.next_poll_at = at.min(now.after(LINGER));
    }

    /// A poll further ahead than any planned delay was planned before the clock was set back.
    fn is_due(&self, now: Millis) -> bool {
        self.next_poll_at <= now || self.next_poll_at > now.after(LINGER)
    }
}

/// The streamed answers of one chat; the one polled last is at the end.
#[derive(Debug, Default)]
pub(super) struct PreviewStreams(Vec<PreviewStream>);

impl PreviewStreams {
    /// Replaces an older stream of the same turn. At the limit, the stream that has waited longest is dropped; its answer is still
    /// delivered when it is complete.
    pub(super) fn add(&mut self, stream: PreviewStream) {
        self.0.retain(|known| known.turn != stream.turn);
        if self.0.len() >= MAX_STREAMS {
            self.0.remove(0);
        }
        self.0.push(stream);
    }

    pub(super) fn next_poll(&self) -> Option<Millis> {
        self.0.iter().map(|stream| stream.next_poll_at).min()
    }

    pub(super) fn pop_due(&mut self, now: Millis) -> Option<PreviewStream> {
        let at = self.0.iter().position(|stream| stream.is_due(now))?;
        Some(self.0.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::message::{ChatType, Delivery};
    use petasos_core::{Platform, Source};

    use super::*;
    use crate::sessions::view::LiveTurn;

    const NOW: Millis = Millis(1_000_000);

    fn stream(turn: i64, text: &str) -> (watch::Sender<SessionView>, PreviewStream) {
        let platform = Platform::parse("telegram").expect("known");
        let route = Route::to_source(&Source::new(platform, ChatType::Group, "-5"), Delivery::Push);
        let turn = TurnId(turn);
        let live = Some(LiveTurn { turn, step: 1, attempt: 1, text: text.into(), tools: vec![] });
        let (show, view) = watch::channel(SessionView { live, ..SessionView::default() });
        (show, PreviewStream::new(turn, SessionKey("k".into()), route, view, Duration::ZERO, NOW))
    }

    #[test]
    fn ends_when_its_session_has_gone() {
        let (show, stream) = stream(1, "a growing text");
        let soon = stream.next_poll_at;
        assert_eq!(
            stream.poll(soon, PreviewMode::Text),
            PreviewUpdate::Show { step: 1, text: "a growing text".into() }
        );
        drop(show);
        assert_eq!(stream.poll(soon, PreviewMode::Text), PreviewUpdate::Ended);
    }

    #[test]
    fn postponed_poll_is_not_due_at_once_after_a_long_wait() {
        for seconds in [1, 59, 60, 61, 300, 86_400] {
            let mut streams = PreviewStreams::default();
            let (_show, mut stream) = stream(1, "a growing text");
            stream.postpone(NOW.after(Duration::from_secs(seconds)), NOW);
            streams.add(stream);
            assert!(streams.pop_due(NOW).is_none(), "{seconds} s");
            let next = streams.next_poll().expect("a poll");
            assert!(next > NOW && streams.pop_due(next).is_some(), "{seconds} s");
        }
    }

    #[test]
    fn hides_attachment_tags_in_previews() {
        let (_show, stream) = stream(1, "Here is the report.\nMEDIA:/tmp/re");
        let want = PreviewUpdate::Show { step: 1, text: "Here is the report.".into() };
        assert_eq!(stream.poll(NOW, PreviewMode::Text), want);
        let (_show, stream) = self::stream(1, "MEDIA:/tmp/report.pdf");
        assert_eq!(stream.poll(NOW, PreviewMode::Text), PreviewUpdate::Typing);
    }

    #[test]
    fn repeats_typing_when_text_is_not_shown() {
        let (_show, mut stream) = stream(1, "a growing text");
        let soon = stream.next_poll_at;
        assert_eq!(stream.poll(soon, PreviewMode::Typing), PreviewUpdate::Typing);
        stream.typing_sent(soon);
        assert_eq!(stream.poll(soon, PreviewMode::Typing), PreviewUpdate::Nothing);
        assert_eq!(stream.poll(soon.after(TYPING_EVERY), PreviewMode::Typing), PreviewUpdate::Typing);
    }

    #[test]
    fn stops_typing_while_a_question_is_open() {
        let (show, stream) = stream(1, "");
        assert_eq!(stream.poll(NOW, PreviewMode::Text), PreviewUpdate::Typing);
        let question =
            crate::sessions::view::OpenQuestion { id: "q1".into(), text: "May I?".into(), buttons: vec![] };
        show.send_modify(|view| view.questions.push(question));
        assert_eq!(stream.poll(NOW, PreviewMode::Text), PreviewUpdate::Nothing);
        show.send_modify(|view| view.questions.clear());
        assert_eq!(stream.poll(NOW, PreviewMode::Text), PreviewUpdate::Typing);
    }

    #[test]
    fn zero_gap_does_not_busy_loop() {
        let (_show, mut stream) = stream(1, "");
        stream.schedule_next_poll(NOW);
        assert_eq!(stream.next_poll_at, NOW.after(MIN_GAP));
    }

    #[test]
    fn keeps_one_stream_per_turn_up_to_a_limit() {
        let mut streams = PreviewStreams::default();
        let mut senders = vec![];
        for turn in [1, 2, 1].into_iter().chain(3..=9) {
            let (show, stream) = stream(turn, "");
            senders.push(show);
            streams.add(stream);
        }
        let later = streams.next_poll().expect("some");
        assert!(streams.pop_due(later.before(Duration::from_millis(1))).is_none());
        let turns: Vec<_> = std::iter::from_fn(|| streams.pop_due(later)).map(|it| it.turn.0).collect();
        assert_eq!(turns, [1, 3, 4, 5, 6, 7, 8, 9]);
    }
}
