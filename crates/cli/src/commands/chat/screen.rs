//! What the terminal shows of a conversation: the growing answer, tools at work, notices.

use petasos_core::transcript::{Message, Role};

use super::feed::{News, Row};
use super::markdown::Renderer;
use super::paper::Paper;
use crate::print::{DIM, ODD, cut, styled};

/// How much of an earlier conversation is shown again.
const EARLIER: usize = 6;

#[derive(Debug)]
pub(super) struct Screen {
    paper: Paper,
    /// The answer that is growing.
    live: Option<Live>,
    /// What was typed here and has not come back as a row: it stands on the screen already.
    asked: Vec<Asked>,
    answers: Vec<String>,
    notices: Vec<String>,
}

#[derive(Debug)]
struct Live {
    step: (i64, u32),
    /// What has been printed of it.
    text: String,
    renderer: Renderer,
}

#[derive(Debug)]
struct Asked {
    id: String,
    text: String,
}

impl Screen {
    pub(super) fn on(paper: Paper) -> Self {
        Self { paper, live: None, asked: Vec::new(), answers: Vec::new(), notices: Vec::new() }
    }

    /// Nothing is printed, answers are only kept.
    pub(super) fn collecting() -> Self {
        Self::on(Paper::None)
    }

    pub(super) fn answers(&self) -> &[String] {
        &self.answers
    }

    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The person has typed this here: it need not be shown again.
    pub(super) fn asked(&mut self, id: &str, text: &str) {
        self.asked.push(Asked { id: id.to_owned(), text: text.trim().to_owned() });
    }

    /// Its own turn begins: what was said until now belonged to another one.
    pub(super) fn begin(&mut self) {
        self.answers.clear();
        self.notices.clear();
    }

    /// The end of what was said before.
    pub(super) fn earlier(&mut self, rows: &[Box<Row>]) {
        let spoken =
            rows.iter().filter(|row| row.message.role != Role::Tool && !row.message.content.is_empty());
        let spoken: Vec<_> = spoken.collect();
        let skip = spoken.len().saturating_sub(EARLIER);
        if skip > 0 {
            self.line(&styled(DIM, &format!("… {skip} earlier messages (petasos sessions show)")));
        }
        for row in &spoken[skip..] {
            self.row(&row.message);
        }
    }

    pub(super) fn show(&mut self, news: News) {
        match news {
            News::Row(row) => self.row(&row.message),
            News::Live { step, offset, text } => self.grow(step, offset, &text),
            News::Idle | News::Session(_) => {}
            News::Lost => {
                self.settle();
                self.line(&styled(DIM, "(the gateway is gone; waiting for it to come back)"));
            }
            News::Back => self.line(&styled(DIM, "(connected again)")),
        }
    }

    /// Ends a line that is still open.
    pub(super) fn settle(&mut self) {
        if let Some(live) = self.live.take()
            && !live.text.is_empty()
        {
            self.paper.write(&live.renderer.finish());
        }
    }

    /// A word of our own.
    pub(super) fn remark(&mut self, text: &str) {
        self.settle();
        self.line(&styled(DIM, text));
    }

    /// Whether this row is something that was typed here; several messages may have become one.
    fn is_ours(&mut self, message: &Message) -> bool {
        let before = self.asked.len();
        let id = message.platform_message_id.as_deref().unwrap_or_default();
        self.asked.retain(|asked| asked.id != id && !message.content.contains(&asked.text));
        self.asked.len() < before
    }

    fn row(&mut self, message: &Message) {
        match message.role {
            Role::User if self.is_ours(message) => {}
            Role::User => self.line(&styled(DIM, &format!("› {}", message.content))),
            Role::Assistant => self.answer(message),
            Role::Tool | Role::Summary => {}
            Role::Notice => {
                self.settle();
                self.notices.push(message.content.clone());
                self.line(&styled(ODD, &message.content));
            }
        }
    }

    /// A finished answer: whatever of it has not been printed yet.
    fn answer(&mut self, message: &Message) {
        match self.live.take().filter(|live| !live.text.is_empty()) {
            // What is stored has no blanks at its end.
            Some(mut live) if message.content.starts_with(live.text.trim_end()) => {
                let rest = live.renderer.push(&message.content[live.text.trim_end().len()..]);
                self.paper.write(&format!("{rest}{}", live.renderer.finish()));
            }
            Some(live) => {
                self.paper.write(&live.renderer.finish());
                self.whole(&message.content);
            }
            None => self.whole(&message.content),
        }
        if message.tool_calls.is_empty() {
            self.answers.push(message.content.clone());
        }
        for call in &message.tool_calls {
            self.line(&styled(DIM, &format!("⚙ {} {}", call.name, cut(&call.arguments, 80))));
        }
    }

    fn whole(&mut self, text: &str) {
        if !text.is_empty() {
            let drawn = Renderer::all(self.paper.width(), text);
            self.paper.write(&drawn);
        }
    }

    fn grow(&mut self, step: (i64, u32), offset: usize, text: &str) {
        if self.live.as_ref().is_some_and(|live| live.step != step) {
            self.settle();
        }
        let width = self.paper.width();
        let begun = || Live { step, text: String::new(), renderer: Renderer::new(width) };
        let mut live = self.live.take().unwrap_or_else(begun);
        // After a reconnection the whole text comes again; a model call that was begun anew replaces it.
        let fresh = match (offset, text.strip_prefix(live.text.as_str())) {
            (0, Some(rest)) => rest,
            (0, None) => {
                self.paper.write(&live.renderer.finish());
                live = begun();
                text
            }
            (at, _) if at == live.text.len() => text,
            _ => "",
        };
        let out = live.renderer.push(fresh);
        live.text.push_str(fresh);
        self.paper.write(&out);
        self.live = Some(live);
    }

    fn line(&mut self, text: &str) {
        self.paper.write(&format!("{text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_core::Millis;

    #[test]
    fn answers_are_kept_and_notices_beside_them() {
        let mut screen = Screen::collecting();
        screen.asked("m1", "q");
        screen.grow((1, 0), 0, "Hel");
        screen.grow((1, 0), 3, "lo");
        screen.row(&Message::notice("busy", Millis(1)));
        screen.row(&Message::assistant("Hello", Millis(2)));
        assert_eq!(screen.answers(), ["Hello"]);
        assert_eq!(screen.notices(), ["busy"]);
    }

    #[test]
    fn what_was_typed_here_is_not_shown_again_even_if_it_was_merged() {
        let mut screen = Screen::collecting();
        screen.asked("m1", "one ");
        screen.asked("m2", "two");
        screen.asked("m3", "three");
        let row = |text: &str| Message::user(text, Millis(1));
        assert!(screen.is_ours(&row("one\n\ntwo")));
        assert!(screen.is_ours(&Message { platform_message_id: Some("m3".into()), ..row("[note] 3") }));
        assert!(!screen.is_ours(&row("somebody else's")));
    }

    #[test]
    fn a_running_text_continues_restarts_and_survives_a_reconnection() {
        let mut screen = Screen::collecting();
        let text = |screen: &Screen| screen.live.as_ref().unwrap().text.clone();
        screen.grow((1, 0), 0, "Grü");
        screen.grow((1, 0), 4, "ße");
        assert_eq!(text(&screen), "Grüße");
        screen.grow((1, 0), 0, "Grüße an");
        assert_eq!(text(&screen), "Grüße an");
        screen.grow((1, 0), 0, "Neu");
        assert_eq!(text(&screen), "Neu");
        screen.grow((1, 1), 0, "N");
        assert_eq!(text(&screen), "N");
    }
}
