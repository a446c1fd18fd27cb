//! Live events of a chat: the difference between the view and what this client already has.

use petasos_core::TurnId;
use petasos_gateway::{LiveTurn, OpenQuestion, SessionView};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum LiveChange {
    /// `text` continues the answer at byte `offset`; at 0 it replaces the answer.
    Live {
        turn: TurnId,
        step: u32,
        offset: usize,
        text: String,
    },
    Tools {
        turn: TurnId,
        tools: Vec<String>,
    },
    /// Messages that wait behind the running turn.
    Queued {
        count: usize,
    },
    Questions {
        questions: Vec<OpenQuestion>,
    },
    Idle {},
}

impl LiveChange {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Live { .. } => "live",
            Self::Tools { .. } => "tools",
            Self::Queued { .. } => "queued",
            Self::Questions { .. } => "questions",
            Self::Idle {} => "idle",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct LiveDiff {
    turn: SentState,
    queued: usize,
    questions: Vec<OpenQuestion>,
}

#[derive(Debug, Default)]
enum SentState {
    #[default]
    Unsent,
    Idle,
    Turn(SentTurn),
}

#[derive(Debug)]
struct SentTurn {
    turn: TurnId,
    step: u32,
    text: String,
    tools: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveView<'a> {
    pub(crate) live: Option<LiveAnswer<'a>>,
    pub(crate) queued: usize,
    pub(crate) questions: &'a [OpenQuestion],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveAnswer<'a> {
    turn: TurnId,
    step: u32,
    text: &'a str,
    tools: &'a [String],
}

impl<'a> From<&'a SessionView> for LiveView<'a> {
    fn from(view: &'a SessionView) -> Self {
        let live = view.live.as_ref().map(LiveAnswer::from);
        Self { live, queued: view.queued, questions: &view.questions }
    }
}

impl<'a> From<&'a LiveTurn> for LiveAnswer<'a> {
    fn from(live: &'a LiveTurn) -> Self {
        Self { turn: live.turn, step: live.step, text: &live.text, tools: &live.tools }
    }
}

impl LiveDiff {
    pub(crate) fn update(&mut self, view: LiveView<'_>) -> Vec<LiveChange> {
        let mut changes = Vec::new();
        match view.live {
            Some(live) => self.update_answer(live, &mut changes),
            None => self.set_idle(&mut changes),
        }
        if self.queued != view.queued {
            self.queued = view.queued;
            changes.push(LiveChange::Queued { count: view.queued });
        }
        if self.questions != view.questions {
            self.questions = view.questions.to_vec();
            changes.push(LiveChange::Questions { questions: self.questions.clone() });
        }
        changes
    }

    fn set_idle(&mut self, changes: &mut Vec<LiveChange>) {
        if !matches!(self.turn, SentState::Idle) {
            self.turn = SentState::Idle;
            changes.push(LiveChange::Idle {});
        }
    }

    fn update_answer(&mut self, view: LiveAnswer<'_>, changes: &mut Vec<LiveChange>) {
        let SentState::Turn(sent) = &mut self.turn else {
            changes.push(view.text_from(0));
            changes.extend((!view.tools.is_empty()).then(|| view.tools()));
            self.turn = SentState::Turn(view.sent());
            return;
        };
        changes.extend(sent.text_change(view));
        if sent.tools != view.tools {
            changes.push(view.tools());
        }
        *sent = view.sent();
    }
}

impl SentTurn {
    /// A text that does not continue the sent text (a new step, a repeated model call) is sent from the beginning.
    fn text_change(&self, view: LiveAnswer<'_>) -> Option<LiveChange> {
        let continues = (self.turn, self.step) == (view.turn, view.step) && view.text.starts_with(&self.text);
        if !continues {
            return Some(view.text_from(0));
        }
        (view.text.len() > self.text.len()).then(|| view.text_from(self.text.len()))
    }
}

impl LiveAnswer<'_> {
    fn text_from(self, offset: usize) -> LiveChange {
        let text = self.text.get(offset..).unwrap_or_default().to_owned();
        LiveChange::Live { turn: self.turn, step: self.step, offset, text }
    }

    fn tools(self) -> LiveChange {
        LiveChange::Tools { turn: self.turn, tools: self.tools.to_vec() }
    }

    fn sent(self) -> SentTurn {
        SentTurn { turn: self.turn, step: self.step, text: self.text.to_owned(), tools: self.tools.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: LiveView<'static> = LiveView { live: None, queued: 0, questions: &[] };

    fn view<'a>(step: u32, text: &'a str, tools: &'a [String]) -> LiveView<'a> {
        LiveView { live: Some(LiveAnswer { turn: TurnId(7), step, text, tools }), queued: 0, questions: &[] }
    }

    fn live(step: u32, offset: usize, text: &str) -> LiveChange {
        LiveChange::Live { turn: TurnId(7), step, offset, text: text.into() }
    }

    #[track_caller]
    fn check(steps: &[(LiveView<'_>, Vec<LiveChange>)]) {
        let mut diff = LiveDiff::default();
        for (index, (view, want)) in steps.iter().enumerate() {
            assert_eq!(&diff.update(*view), want, "step {index}");
        }
    }

    #[test]
    fn sends_whole_text_once_then_only_additions() {
        check(&[
            (view(0, "Grü", &[]), vec![live(0, 0, "Grü")]),
            (view(0, "Grü", &[]), vec![]),
            (view(0, "Grüße 你", &[]), vec![live(0, 4, "ße 你")]),
            (view(0, "Grüße 你好👋", &[]), vec![live(0, 11, "好👋")]),
        ]);
    }

    #[test]
    fn restarted_text_replaces_old_text() {
        check(&[
            (view(0, "abc", &[]), vec![live(0, 0, "abc")]),
            (view(0, "xyzw", &[]), vec![live(0, 0, "xyzw")]),
            (view(0, "x", &[]), vec![live(0, 0, "x")]),
            (view(1, "xy", &[]), vec![live(1, 0, "xy")]),
        ]);
    }

    #[test]
    fn suffixes_of_any_split_form_the_text() {
        let text = "aß你👋\u{301}e\n";
        let cuts = (0..=text.len()).filter(|at| text.is_char_boundary(*at));
        let mut diff = LiveDiff::default();
        let mut got = String::new();
        for change in cuts.flat_map(|cut| diff.update(view(0, &text[..cut], &[]))) {
            let LiveChange::Live { offset, text, .. } = change else { panic!("{change:?}") };
            assert_eq!(offset, got.len());
            got.push_str(&text);
        }
        assert_eq!(got, text);
    }

    #[test]
    fn sends_questions_when_they_open_and_close() {
        let open = [OpenQuestion { id: "q1".into(), text: "May I?".into(), buttons: vec![] }];
        let waiting = LiveView { questions: &open, ..view(0, "", &[]) };
        let sent = |questions: &[OpenQuestion]| LiveChange::Questions { questions: questions.to_vec() };
        check(&[
            (view(0, "", &[]), vec![live(0, 0, "")]),
            (waiting, vec![sent(&open)]),
            (waiting, vec![]),
            (view(0, "", &[]), vec![sent(&[])]),
        ]);
    }

    #[test]
    fn sends_tools_and_queue_when_they_change() {
        let clock = ["clock".to_owned()];
        let waiting = LiveView { queued: 2, ..view(0, "", &clock) };
        let tools = |tools: &[String]| LiveChange::Tools { turn: TurnId(7), tools: tools.to_vec() };
        check(&[
            (IDLE, vec![LiveChange::Idle {}]),
            (IDLE, vec![]),
            (waiting, vec![live(0, 0, ""), tools(&clock), LiveChange::Queued { count: 2 }]),
            (waiting, vec![]),
            (view(0, "", &[]), vec![tools(&[]), LiveChange::Queued { count: 0 }]),
            (IDLE, vec![LiveChange::Idle {}]),
        ]);
    }
}
