//! The interactive chat: sends each line at once, also while an answer is running, and shows output above the
//! input line. The gateway decides whether such a message queues, steers or interrupts.

use std::process::ExitCode;

use petasos_core::transcript::Role;
use serde_json::Value;

use super::editor::{Editor, EditorInput};
use super::exchange::Exchange;
use super::feed::FeedEvent;
use super::view::View;
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{DIM, outln, styled};

#[derive(Debug, Default)]
struct ChatState {
    live: bool,
    /// A message was sent, and no answer has started.
    waiting: bool,
    /// Ctrl-C was pressed while nothing was running; pressed again it leaves.
    leaving: bool,
}

pub(super) async fn run(
    context: &Context,
    client: &Client,
    exchange: &mut Exchange,
    fresh: bool,
) -> Result<ExitCode, Failure> {
    let status: Value = client.get("/api/status").await?;
    let model = status.pointer("/model/name").and_then(Value::as_str).unwrap_or("?");
    let hint = format!("{model} · /help lists commands · Ctrl-C interrupts · /exit or Ctrl-D leaves");
    outln!("{}", styled(DIM, &hint));
    let (mut editor, output) = Editor::start(context.home.chat_history())?;
    let mut view = View::new(output);
    let mut state = ChatState::default();
    if fresh {
        exchange.load_history(&mut View::buffered()).await;
        exchange.post("/new").await?;
    } else {
        exchange.load_history(&mut view).await;
    }
    editor.request_line();
    loop {
        tokio::select! {
            event = exchange.next_event() => match event {
                Some(event) => state.handle_event(event, &mut view),
                None => return Ok(ExitCode::SUCCESS),
            },
            input = editor.next() => {
                match input? {
                    EditorInput::Line(line) if is_exit_command(&line) => return Ok(ExitCode::SUCCESS),
                    EditorInput::Line(line) => state.send(line.trim_end(), exchange, &mut view).await,
                    EditorInput::Interrupted if state.leaving => return Ok(ExitCode::SUCCESS),
                    EditorInput::Interrupted => state.interrupt(exchange, &mut view).await,
                    EditorInput::End => return Ok(ExitCode::SUCCESS),
                }
                editor.request_line();
            }
        }
    }
}

impl ChatState {
    fn handle_event(&mut self, event: FeedEvent, view: &mut View) {
        match &event {
            FeedEvent::Live { .. } => *self = Self { live: true, waiting: false, ..*self },
            FeedEvent::Row(row) if row.message.role == Role::Assistant => self.waiting = false,
            FeedEvent::Idle => {
                view.finish_live();
                self.live = false;
            }
            FeedEvent::Row(_) | FeedEvent::Session(_) | FeedEvent::Disconnected | FeedEvent::Reconnected => {}
        }
        view.show(event);
    }

    async fn send(&mut self, line: &str, exchange: &mut Exchange, view: &mut View) {
        self.leaving = false;
        if line.trim().is_empty() {
            return;
        }
        match exchange.post(line).await {
            Ok(id) => {
                view.add_pending(&id, line);
                self.waiting |= !line.starts_with('/');
            }
            Err(failure) => view.remark(&format!("The message was not sent: {failure}")),
        }
    }

    async fn interrupt(&mut self, exchange: &Exchange, view: &mut View) {
        if self.live || self.waiting {
            self.waiting = false;
            if let Err(failure) = exchange.stop().await {
                view.remark(&format!("The answer could not be stopped: {failure}"));
            }
            return;
        }
        self.leaving = true;
        view.remark("Press Ctrl-C again, Ctrl-D or type /exit to leave");
    }
}

fn is_exit_command(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "/exit" | "/quit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_command_is_a_whole_line() {
        assert!(is_exit_command("/exit") && is_exit_command(" /QUIT "));
        assert!(!is_exit_command("/exit now") && !is_exit_command("exit"));
    }
}
