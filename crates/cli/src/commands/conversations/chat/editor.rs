//! The line editor: history and completion of slash commands. It blocks, so it runs on its own thread.
//!
//! It reads the next line only on request, so that the terminal is restored when the chat ends in between.

use std::borrow::Cow;
use std::path::PathBuf;

use petasos_core::command;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Helper};

use tokio::sync::mpsc;

use super::output::Output;
use crate::failure::Failure;
use crate::print::{DIM, styled};

const PROMPT: &str = "› ";
const HISTORY: usize = 1000;

#[derive(Debug)]
pub(super) enum EditorInput {
    Line(String),
    Interrupted,
    End,
}

type LineEditor = rustyline::Editor<CommandCompleter, FileHistory>;

/// Dropping it ends the thread after the current line.
#[derive(Debug)]
pub(super) struct Editor {
    inputs: mpsc::Receiver<Result<EditorInput, Failure>>,
    permit: std::sync::mpsc::SyncSender<()>,
}

impl Editor {
    /// Starts the editor; the output prints above its input line.
    #[expect(clippy::disallowed_methods, reason = "reading a line blocks")]
    pub(super) fn start(history: PathBuf) -> Result<(Self, Output), Failure> {
        let mut lines = lines()?;
        lines.set_helper(Some(CommandCompleter));
        // An unreadable history counts as empty.
        let _ = lines.load_history(&history);
        let columns = columns_of(&mut lines);
        let output = match lines.create_external_printer() {
            Ok(printer) => Output::above(Box::new(printer), columns),
            // The terminal cannot move its cursor.
            Err(_) => Output::stdout(columns),
        };
        let (sender, inputs) = mpsc::channel(1);
        let (permit, next) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("petasos-editor".into());
        thread
            .spawn(move || {
                while next.recv().is_ok() {
                    let read = input(lines.readline(PROMPT));
                    let _ = lines.append_history(&history);
                    if sender.blocking_send(read).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| Failure::new(format!("the line editor's thread cannot be started: {error}")))?;
        Ok((Self { inputs, permit }, output))
    }

    pub(super) fn request_line(&self) {
        let _ended = self.permit.try_send(());
    }

    pub(super) async fn next(&mut self) -> Result<EditorInput, Failure> {
        self.inputs.recv().await.unwrap_or(Ok(EditorInput::End))
    }
}

pub(super) fn columns() -> Option<usize> {
    lines().ok().and_then(|mut lines| columns_of(&mut lines))
}

fn columns_of(lines: &mut LineEditor) -> Option<usize> {
    lines.dimensions().map(|(columns, _)| usize::from(columns))
}

fn lines() -> Result<LineEditor, Failure> {
    let config = Config::builder().auto_add_history(true).max_history_size(HISTORY).map_err(failed)?;
    LineEditor::with_config(config.build()).map_err(failed)
}

fn input(read: rustyline::Result<String>) -> Result<EditorInput, Failure> {
    match read {
        Ok(line) => Ok(EditorInput::Line(line)),
        Err(ReadlineError::Interrupted) => Ok(EditorInput::Interrupted),
        Err(ReadlineError::Eof) => Ok(EditorInput::End),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: ReadlineError) -> Failure {
    Failure::new(format!("the terminal cannot be read: {error}"))
        .next("petasos chat \"question\" needs no terminal")
}

struct CommandCompleter;

fn candidates(line: &str) -> impl Iterator<Item = &'static command::Spec> {
    let typed = line.strip_prefix('/').filter(|word| !word.contains(char::is_whitespace)).map(str::to_owned);
    command::TABLE.iter().filter(move |spec| typed.as_ref().is_some_and(|typed| spec.word.starts_with(typed)))
}

impl Completer for CommandCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let found = candidates(&line[..pos]).map(|spec| Pair {
            display: format!("/{}  {}", spec.word, spec.help),
            replacement: format!("/{}{}", spec.word, if spec.args.is_empty() { "" } else { " " }),
        });
        Ok((0, found.collect()))
    }
}

impl Hinter for CommandCompleter {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<String> {
        if pos < line.len() || line.len() < 2 {
            return None;
        }
        candidates(line).next().map(|spec| spec.word[line.len() - 1..].to_owned())
    }
}

impl Highlighter for CommandCompleter {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never {
            return Cow::Borrowed(hint);
        }
        Cow::Owned(styled(DIM, hint))
    }
}

impl Validator for CommandCompleter {}

impl Helper for CommandCompleter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_commands_only_after_a_slash() {
        let words = |line: &str| candidates(line).map(|spec| spec.word).collect::<Vec<_>>();
        assert!(words("/").len() >= 12);
        assert_eq!(words("/se"), ["sessions", "sethome"]);
        assert!(words("hello").is_empty() && words("/queue x").is_empty());
    }
}
