//! Renders a conversation: the streamed answer, tool calls and notices.

use petasos_core::transcript::{Message, Role};

use super::feed::{FeedEvent, FeedRow};
use super::markdown::Renderer;
use super::output::Output;
use crate::print::{DIM, WARNING, styled, truncate};

const EARLIER_MESSAGES: usize = 6;

#[derive(Debug)]
pub(super) struct View {
    output: Output,
    live: Option<LiveAnswer>,
    /// Messages typed here whose rows have not arrived yet; they are on the screen already.
    pending: Vec<PendingMessage>,
    answers: Vec<String>,
    notices: Vec<String>,
}

#[derive(Debug)]
struct LiveAnswer {
    step: (i64, u32),
    text: String,
    renderer: Renderer,
}

#[derive(Debug)]
struct PendingMessage {
    id: String,
    text: String,
}

impl View {
    pub(super) fn new(output: Output) -> Self {
        Self { output, live: None, pending: Vec::new(), answers: Vec::new(), notices: Vec::new() }
    }

    /// Collects answers without printing.
    pub(super) fn buffered() -> Self {
        Self::new(Output::Discard)
    }

    pub(super) fn answers(&self) -> &[String] {
        &self.answers
    }

    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Registers a message that was typed here, so that its row is not shown again.
    pub(super) fn add_pending(&mut self, id: &str, text: &str) {
        self.pending.push(PendingMessage { id: id.to_owned(), text: text.trim().to_owned() });
    }

    /// Discards what was collected for an earlier turn.
    pub(super) fn begin(&mut self) {
        self.answers.clear();
        self.notices.clear();
    }

    pub(super) fn show_earlier(&mut self, rows: &[Box<FeedRow>]) {
        let spoken =
            rows.iter().filter(|row| row.message.role != Role::Tool && !row.message.content.is_empty());
        let spoken: Vec<_> = spoken.collect();
        let skip = spoken.len().saturating_sub(EARLIER_MESSAGES);
        if skip > 0 {
            self.line(&styled(DIM, &format!("… {skip} earlier messages (petasos sessions show)")));
        }
        for row in &spoken[skip..] {
            self.row(&row.message);
        }
    }

    pub(super) fn show(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Row(row) => self.row(&row.message),
            FeedEvent::Live { step, offset, text } => self.extend_live(step, offset, &text),
            FeedEvent::Idle | FeedEvent::Session(_) => {}
            FeedEvent::Disconnected => {
                self.finish_live();
                self.line(&styled(DIM, "(The connection to the gateway is lost; waiting for it to return)"));
            }
            FeedEvent::Reconnected => self.line(&styled(DIM, "(Connected again)")),
        }
    }

    pub(super) fn finish_live(&mut self) {
        if let Some(live) = self.live.take()
            && !live.text.is_empty()
        {
            self.output.write(&live.renderer.finish());
        }
    }

    pub(super) fn remark(&mut self, text: &str) {
        self.finish_live();
        self.line(&styled(DIM, text));
    }

    /// Whether this row was typed here; several messages may have been merged into one.
    fn is_ours(&mut self, message: &Message) -> bool {
        let before = self.pending.len();
        let id = message.platform_message_id.as_deref().unwrap_or_default();
        self.pending.retain(|pending| pending.id != id && !message.content.contains(&pending.text));
        self.pending.len() < before
    }

    fn row(&mut self, message: &Message) {
        match message.role {
            Role::User if self.is_ours(message) => {}
            Role::User => self.line(&styled(DIM, &format!("› {}", message.content))),
            Role::Assistant => self.finish_answer(message),
            Role::Tool | Role::Summary => {}
            Role::Notice => {
                self.finish_live();
                self.notices.push(message.content.clone());
                self.line(&styled(WARNING, &message.content));
            }
        }
    }

    /// A complete answer: prints the part that has not been printed yet.
    fn finish_answer(&mut self, message: &Message) {
        match self.live.take().filter(|live| !live.text.is_empty()) {
            // The stored text has no trailing whitespace.
            Some(mut live) if message.content.starts_with(live.text.trim_end()) => {
                let rest = live.renderer.push(&message.content[live.text.trim_end().len()..]);
                self.output.write(&format!("{rest}{}", live.renderer.finish()));
            }
            Some(live) => {
                self.output.write(&live.renderer.finish());
                self.render(&message.content);
            }
            None => self.render(&message.content),
        }
        if message.tool_calls.is_empty() {
            self.answers.push(message.content.clone());
        }
        for call in &message.tool_calls {
            self.line(&styled(DIM, &format!("⚙ {} {}", call.name, truncate(&call.arguments, 80))));
        }
    }

    fn render(&mut self, text: &str) {
        if !text.is_empty() {
            let drawn = Renderer::render(self.output.width(), text);
            self.output.write(&drawn);
        }
    }

    fn extend_live(&mut self, step: (i64, u32), offset: usize, text: &str) {
        if self.live.as_ref().is_some_and(|live| live.step != step) {
            self.finish_live();
        }
        let width = self.output.width();
        let begun = || LiveAnswer { step, text: String::new(), renderer: Renderer::new(width) };
        let mut live = self.live.take().unwrap_or_else(begun);
        // After a reconnection the whole text is sent again; a retried model call replaces it.
        let fresh = match (offset, text.strip_prefix(live.text.as_str())) {
            (0, Some(rest)) => rest,
            (0, None) => {
                self.output.write(&live.renderer.finish());
                live = begun();
                text
            }
            (at, _) if at == live.text.len() => text,
            _ => "",
        };
        let out = live.renderer.push(fresh);
        live.text.push_str(fresh);
        self.output.write(&out);
        self.live = Some(live);
    }

    fn line(&mut self, text: &str) {
        self.output.write(&format!("{text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_core::Millis;

    #[test]
    fn collects_answers_and_notices() {
        let mut view = View::buffered();
        view.add_pending("m1", "q");
        view.extend_live((1, 0), 0, "Hel");
        view.extend_live((1, 0), 3, "lo");
        view.row(&Message::notice("busy", Millis(1)));
        view.row(&Message::assistant("Hello", Millis(2)));
        assert_eq!(view.answers(), ["Hello"]);
        assert_eq!(view.notices(), ["busy"]);
    }

    #[test]
    fn hides_own_messages_even_when_merged() {
        let mut view = View::buffered();
        view.add_pending("m1", "one ");
        view.add_pending("m2", "two");
        view.add_pending("m3", "three");
        let row = |text: &str| Message::user(text, Millis(1));
        assert!(view.is_ours(&row("one\n\ntwo")));
        assert!(view.is_ours(&Message { platform_message_id: Some("m3".into()), ..row("[note] 3") }));
        assert!(!view.is_ours(&row("another person's")));
    }

    #[test]
    fn streamed_text_survives_retry_and_reconnection() {
        let mut view = View::buffered();
        let text = |view: &View| view.live.as_ref().unwrap().text.clone();
        view.extend_live((1, 0), 0, "Grü");
        view.extend_live((1, 0), 4, "ße");
        assert_eq!(text(&view), "Grüße");
        view.extend_live((1, 0), 0, "Grüße an");
        assert_eq!(text(&view), "Grüße an");
        view.extend_live((1, 0), 0, "Neu");
        assert_eq!(text(&view), "Neu");
        view.extend_live((1, 1), 0, "N");
        assert_eq!(text(&view), "N");
    }
}
