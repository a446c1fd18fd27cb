//! A conversation: what is typed is sent at once, whatever the agent is doing; what it says is shown above the
//! line that is being typed. What becomes of a message while another one is answered is the gateway's to say.

use std::process::ExitCode;

use petasos_core::transcript::Role;
use serde_json::Value;

use super::ask::Asker;
use super::editor::{Editor, Input};
use super::feed::News;
use super::screen::Screen;
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{DIM, say, styled};

/// What the person at the keyboard and the agent are doing.
#[derive(Debug, Default)]
struct State {
    /// An answer is being written.
    live: bool,
    /// Something was asked, and nothing has come of it yet.
    waiting: bool,
    /// Ctrl-C was the last thing that was typed, and there was nothing to interrupt.
    leaving: bool,
}

pub(super) async fn talk(
    context: &Context,
    client: &Client,
    asker: &mut Asker,
    fresh: bool,
) -> Result<ExitCode, Failure> {
    let status: Value = client.get("/api/status").await?;
    let model = status.pointer("/model/name").and_then(Value::as_str).unwrap_or("?");
    let hint = format!("{model} · /help lists commands · Ctrl-C interrupts · /exit or Ctrl-D leaves");
    say!("{}", styled(DIM, &hint));
    let (mut editor, paper) = Editor::start(context.home.chat_history())?;
    let mut screen = Screen::on(paper);
    let mut state = State::default();
    if fresh {
        asker.catch_up(&mut Screen::collecting()).await;
        asker.say("/new").await?;
    } else {
        asker.catch_up(&mut screen).await;
    }
    editor.prompt();
    loop {
        tokio::select! {
            news = asker.news() => match news {
                Some(news) => state.hear(news, &mut screen),
                None => return Ok(ExitCode::SUCCESS),
            },
            input = editor.next() => {
                match input? {
                    Input::Line(line) if is_farewell(&line) => return Ok(ExitCode::SUCCESS),
                    Input::Line(line) => state.take(line.trim_end(), asker, &mut screen).await,
                    Input::Interrupted if state.leaving => return Ok(ExitCode::SUCCESS),
                    Input::Interrupted => state.interrupt(asker, &mut screen).await,
                    Input::End => return Ok(ExitCode::SUCCESS),
                }
                editor.prompt();
            }
        }
    }
}

impl State {
    fn hear(&mut self, news: News, screen: &mut Screen) {
        match &news {
            News::Live { .. } => *self = Self { live: true, waiting: false, ..*self },
            News::Row(row) if row.message.role == Role::Assistant => self.waiting = false,
            News::Idle => {
                screen.settle();
                self.live = false;
            }
            News::Row(_) | News::Session(_) | News::Lost | News::Back => {}
        }
        screen.show(news);
    }

    async fn take(&mut self, line: &str, asker: &mut Asker, screen: &mut Screen) {
        self.leaving = false;
        if line.trim().is_empty() {
            return;
        }
        match asker.say(line).await {
            Ok(id) => {
                screen.asked(&id, line);
                self.waiting |= !line.starts_with('/');
            }
            Err(failure) => screen.remark(&format!("not sent: {failure}")),
        }
    }

    async fn interrupt(&mut self, asker: &Asker, screen: &mut Screen) {
        if self.live || self.waiting {
            self.waiting = false;
            if let Err(failure) = asker.stop().await {
                screen.remark(&format!("the answer could not be stopped: {failure}"));
            }
            return;
        }
        self.leaving = true;
        screen.remark("Ctrl-C again, Ctrl-D or /exit leaves");
    }
}

fn is_farewell(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "/exit" | "/quit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farewell_is_a_whole_line() {
        assert!(is_farewell("/exit") && is_farewell(" /QUIT "));
        assert!(!is_farewell("/exit now") && !is_farewell("exit"));
    }
}
