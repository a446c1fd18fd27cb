//! What the terminal shows of a conversation: the growing answer, tools at work, notices.

use std::io::Write;

use petasos_core::transcript::{Message, Role};

use super::feed::{News, Row};
use super::markdown::Styler;
use crate::print::{DIM, ODD, cut, styled};

/// How much of an earlier conversation is shown again.
const EARLIER: usize = 6;

#[derive(Debug)]
pub(super) struct Screen {
    /// `false`: nothing is printed, answers are only kept.
    shown: bool,
    /// The answer that is growing.
    live: Option<Live>,
    asked: Option<String>,
    answers: Vec<String>,
    notices: Vec<String>,
}

#[derive(Debug)]
struct Live {
    step: (i64, u32),
    /// What has been printed of it.
    text: String,
    styler: Styler,
}

impl Screen {
    pub(super) fn showing() -> Self {
        Self { shown: true, live: None, asked: None, answers: Vec::new(), notices: Vec::new() }
    }

    pub(super) fn collecting() -> Self {
        Self { shown: false, ..Self::showing() }
    }

    pub(super) fn answers(&self) -> &[String] {
        &self.answers
    }

    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The person has typed this here: it need not be shown again.
    pub(super) fn asked(&mut self, text: &str) {
        self.asked = Some(text.to_owned());
        self.begin();
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
            self.write(&live.styler.finish());
        }
    }

    fn row(&mut self, message: &Message) {
        match message.role {
            Role::User if self.asked.as_deref().map(str::trim) == Some(message.content.trim()) => {
                self.asked = None
            }
            Role::User => self.line(&styled(DIM, &format!("› {}", message.content))),
            Role::Assistant => self.answer(message),
            Role::Tool => {}
            Role::Notice => {
                self.settle();
                self.notices.push(message.content.clone());
                self.line(&styled(ODD, &message.content));
            }
        }
    }

    /// A finished answer: whatever of it has not been printed yet.
    fn answer(&mut self, message: &Message) {
        let live = self.live.take();
        match live {
            // What is stored has no blanks at its end.
            Some(mut live) if message.content.starts_with(live.text.trim_end()) && !live.text.is_empty() => {
                let rest = live.styler.push(&message.content[live.text.trim_end().len()..]);
                self.write(&format!("{rest}{}", live.styler.finish()));
            }
            Some(live) if !live.text.is_empty() => {
                self.write(&live.styler.finish());
                self.whole(&message.content);
            }
            Some(_) | None => self.whole(&message.content),
        }
        if message.tool_calls.is_empty() {
            self.answers.push(message.content.clone());
        }
        for call in &message.tool_calls {
            self.line(&styled(DIM, &format!("⚙ {} {}", call.name, cut(&call.arguments, 80))));
        }
    }

    fn whole(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut styler = Styler::default();
        let styled = styler.push(text);
        self.write(&format!("{styled}{}", styler.finish()));
    }

    fn grow(&mut self, step: (i64, u32), offset: usize, text: &str) {
        let same = self.live.as_ref().is_some_and(|live| live.step == step);
        if !same {
            self.settle();
        }
        let mut live =
            self.live.take().unwrap_or_else(|| Live { step, text: String::new(), styler: Styler::default() });
        // After a reconnection the whole text comes again; a model call that was begun anew replaces it.
        let fresh = match (offset, text.strip_prefix(live.text.as_str())) {
            (0, Some(rest)) => rest,
            (0, None) => {
                self.write(&live.styler.finish());
                live = Live { step, text: String::new(), styler: Styler::default() };
                text
            }
            (at, _) if at == live.text.len() => text,
            _ => "",
        };
        let out = live.styler.push(fresh);
        live.text.push_str(fresh);
        self.write(&out);
        self.live = Some(live);
    }

    fn line(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    fn write(&self, text: &str) {
        if !self.shown || text.is_empty() {
            return;
        }
        let mut out = anstream::stdout().lock();
        // A terminal that is gone takes the conversation with it; there is nobody to tell.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_core::Millis;

    #[test]
    fn answers_are_kept_and_notices_beside_them() {
        let mut screen = Screen::collecting();
        screen.asked("q");
        screen.grow((1, 0), 0, "Hel");
        screen.grow((1, 0), 3, "lo");
        screen.row(&Message::notice("busy", Millis(1)));
        screen.row(&Message::assistant("Hello", Millis(2)));
        assert_eq!(screen.answers(), ["Hello"]);
        assert_eq!(screen.notices(), ["busy"]);
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
