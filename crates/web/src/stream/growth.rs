//! The page's events of a growing answer: what changed since this reader looked at the view last.

use petasos_core::TurnId;
use petasos_gateway::{Asked, Live, View};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Change {
    /// `text` continues the answer at byte `offset`; at 0 it replaces what was there.
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
    /// So many messages wait behind the running turn.
    Queued {
        count: usize,
    },
    /// What the turn waits for a person to answer.
    Questions {
        questions: Vec<Asked>,
    },
    /// No turn is running.
    Idle {},
}

impl Change {
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

/// What one reader has. Dropping it starts that reader over with the whole text.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    turn: Told,
    queued: usize,
    questions: Vec<Asked>,
}

#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    Idle,
    Running(Running),
}

#[derive(Debug)]
struct Running {
    turn: TurnId,
    step: u32,
    text: String,
    tools: Vec<String>,
}

/// What there is to see now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now<'a> {
    pub(crate) live: Option<Speaking<'a>>,
    pub(crate) queued: usize,
    pub(crate) questions: &'a [Asked],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Speaking<'a> {
    turn: TurnId,
    step: u32,
    text: &'a str,
    tools: &'a [String],
}

impl<'a> From<&'a View> for Now<'a> {
    fn from(view: &'a View) -> Self {
        let live = view.live.as_ref().map(Speaking::from);
        Self { live, queued: view.queued, questions: &view.questions }
    }
}

impl<'a> From<&'a Live> for Speaking<'a> {
    fn from(live: &'a Live) -> Self {
        Self { turn: live.turn, step: live.step, text: &live.text, tools: &live.tools }
    }
}

impl Shown {
    /// What has changed for this reader; empty when it is up to date.
    pub(crate) fn follow(&mut self, now: Now<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        match now.live {
            Some(live) => self.speaking(live, &mut changes),
            None => self.idle(&mut changes),
        }
        if self.queued != now.queued {
            self.queued = now.queued;
            changes.push(Change::Queued { count: now.queued });
        }
        if self.questions != now.questions {
            self.questions = now.questions.to_vec();
            changes.push(Change::Questions { questions: self.questions.clone() });
        }
        changes
    }

    fn idle(&mut self, changes: &mut Vec<Change>) {
        if !matches!(self.turn, Told::Idle) {
            self.turn = Told::Idle;
            changes.push(Change::Idle {});
        }
    }

    fn speaking(&mut self, now: Speaking<'_>, changes: &mut Vec<Change>) {
        let Told::Running(told) = &mut self.turn else {
            changes.push(now.starting_at(0));
            changes.extend((!now.tools.is_empty()).then(|| now.tools()));
            self.turn = Told::Running(now.told());
            return;
        };
        changes.extend(told.growth(now));
        if told.tools != now.tools {
            changes.push(now.tools());
        }
        *told = now.told();
    }
}

impl Running {
    /// A text that is no continuation (a new step, a model call that was begun again) is told anew.
    fn growth(&self, now: Speaking<'_>) -> Option<Change> {
        let continues = (self.turn, self.step) == (now.turn, now.step) && now.text.starts_with(&self.text);
        if !continues {
            return Some(now.starting_at(0));
        }
        (now.text.len() > self.text.len()).then(|| now.starting_at(self.text.len()))
    }
}

impl Speaking<'_> {
    fn starting_at(self, offset: usize) -> Change {
        let text = self.text.get(offset..).unwrap_or_default().to_owned();
        Change::Live { turn: self.turn, step: self.step, offset, text }
    }

    fn tools(self) -> Change {
        Change::Tools { turn: self.turn, tools: self.tools.to_vec() }
    }

    fn told(self) -> Running {
        Running { turn: self.turn, step: self.step, text: self.text.to_owned(), tools: self.tools.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Now<'static> = Now { live: None, queued: 0, questions: &[] };

    fn now<'a>(step: u32, text: &'a str, tools: &'a [String]) -> Now<'a> {
        Now { live: Some(Speaking { turn: TurnId(7), step, text, tools }), queued: 0, questions: &[] }
    }

    fn live(step: u32, offset: usize, text: &str) -> Change {
        Change::Live { turn: TurnId(7), step, offset, text: text.into() }
    }

    #[track_caller]
    fn check(steps: &[(Now<'_>, Vec<Change>)]) {
        let mut shown = Shown::default();
        for (index, (now, want)) in steps.iter().enumerate() {
            assert_eq!(&shown.follow(*now), want, "step {index}");
        }
    }

    #[test]
    fn a_reader_gets_the_whole_text_once_and_then_only_what_is_new() {
        check(&[
            (now(0, "Grü", &[]), vec![live(0, 0, "Grü")]),
            (now(0, "Grü", &[]), vec![]),
            (now(0, "Grüße 你", &[]), vec![live(0, 4, "ße 你")]),
            (now(0, "Grüße 你好👋", &[]), vec![live(0, 11, "好👋")]),
        ]);
    }

    #[test]
    fn a_text_that_was_begun_again_replaces_the_old_one() {
        check(&[
            (now(0, "abc", &[]), vec![live(0, 0, "abc")]),
            (now(0, "xyzw", &[]), vec![live(0, 0, "xyzw")]),
            (now(0, "x", &[]), vec![live(0, 0, "x")]),
            (now(1, "xy", &[]), vec![live(1, 0, "xy")]),
        ]);
    }

    #[test]
    fn the_suffixes_of_any_split_add_up_to_the_text() {
        let text = "aß你👋\u{301}e\n";
        let cuts = (0..=text.len()).filter(|at| text.is_char_boundary(*at));
        let (mut shown, mut got) = (Shown::default(), String::new());
        for change in cuts.flat_map(|cut| shown.follow(now(0, &text[..cut], &[]))) {
            let Change::Live { offset, text, .. } = change else { panic!("{change:?}") };
            assert_eq!(offset, got.len());
            got.push_str(&text);
        }
        assert_eq!(got, text);
    }

    #[test]
    fn questions_are_told_when_they_come_and_go() {
        let asked = [Asked { id: "q1".into(), text: "May I?".into(), buttons: vec![] }];
        let waiting = Now { questions: &asked, ..now(0, "", &[]) };
        let told = |questions: &[Asked]| Change::Questions { questions: questions.to_vec() };
        check(&[
            (now(0, "", &[]), vec![live(0, 0, "")]),
            (waiting, vec![told(&asked)]),
            (waiting, vec![]),
            (now(0, "", &[]), vec![told(&[])]),
        ]);
    }

    #[test]
    fn tools_and_the_queue_are_told_when_they_change() {
        let clock = ["clock".to_owned()];
        let waiting = Now { queued: 2, ..now(0, "", &clock) };
        let tools = |tools: &[String]| Change::Tools { turn: TurnId(7), tools: tools.to_vec() };
        check(&[
            (IDLE, vec![Change::Idle {}]),
            (IDLE, vec![]),
            (waiting, vec![live(0, 0, ""), tools(&clock), Change::Queued { count: 2 }]),
            (waiting, vec![]),
            (now(0, "", &[]), vec![tools(&[]), Change::Queued { count: 0 }]),
            (IDLE, vec![Change::Idle {}]),
        ]);
    }
}
