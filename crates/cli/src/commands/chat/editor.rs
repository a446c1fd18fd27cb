//! The line editor: history, completion of slash commands. It blocks, so it works on a thread of its own.
//!
//! After each line it waits to be told to read the next one: whoever leaves meanwhile finds the terminal as
//! it was.

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

use super::paper::Paper;
use crate::failure::Failure;
use crate::print::{DIM, styled};

const PROMPT: &str = "› ";
const HISTORY: usize = 1000;

#[derive(Debug)]
pub(super) enum Input {
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D.
    End,
}

type Lines = rustyline::Editor<Commands, FileHistory>;

/// Dropping it ends the thread after the line that is being read.
#[derive(Debug)]
pub(super) struct Editor {
    inputs: mpsc::Receiver<Result<Input, Failure>>,
    go_on: std::sync::mpsc::SyncSender<()>,
}

impl Editor {
    /// The editor, and where to write while it reads.
    pub(super) fn start(history: PathBuf) -> Result<(Self, Paper), Failure> {
        let mut lines = lines()?;
        lines.set_helper(Some(Commands));
        // A history that cannot be read is an empty one.
        let _ = lines.load_history(&history);
        let columns = columns_of(&mut lines);
        let paper = match lines.create_external_printer() {
            Ok(printer) => Paper::above(Box::new(printer), columns),
            // A terminal that cannot move its cursor.
            Err(_) => Paper::stdout(columns),
        };
        let (tell, inputs) = mpsc::channel(1);
        let (go_on, next) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("petasos-editor".into());
        thread
            .spawn(move || {
                while next.recv().is_ok() {
                    let read = input(lines.readline(PROMPT));
                    // Losing the history costs some typing, nothing else.
                    let _ = lines.append_history(&history);
                    if tell.blocking_send(read).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| Failure::new(format!("no thread for the line editor: {error}")))?;
        Ok((Self { inputs, go_on }, paper))
    }

    /// Lets the next line be typed.
    pub(super) fn prompt(&self) {
        let _ended = self.go_on.try_send(());
    }

    pub(super) async fn next(&mut self) -> Result<Input, Failure> {
        self.inputs.recv().await.unwrap_or(Ok(Input::End))
    }
}

/// How wide the terminal is, if there is one.
pub(super) fn columns() -> Option<usize> {
    lines().ok().and_then(|mut lines| columns_of(&mut lines))
}

fn columns_of(lines: &mut Lines) -> Option<usize> {
    lines.dimensions().map(|(columns, _)| usize::from(columns))
}

fn lines() -> Result<Lines, Failure> {
    let config = Config::builder().auto_add_history(true).max_history_size(HISTORY).map_err(failed)?;
    Lines::with_config(config.build()).map_err(failed)
}

fn input(read: rustyline::Result<String>) -> Result<Input, Failure> {
    match read {
        Ok(line) => Ok(Input::Line(line)),
        Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
        Err(ReadlineError::Eof) => Ok(Input::End),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: ReadlineError) -> Failure {
    Failure::new(format!("the terminal cannot be read: {error}"))
        .next("petasos chat \"question\" needs no terminal")
}

/// Knows the slash commands.
struct Commands;

/// What `line` may become: whole commands that start with it.
fn candidates(line: &str) -> impl Iterator<Item = &'static command::Spec> {
    let typed = line.strip_prefix('/').filter(|word| !word.contains(char::is_whitespace)).map(str::to_owned);
    command::TABLE.iter().filter(move |spec| typed.as_ref().is_some_and(|typed| spec.word.starts_with(typed)))
}

impl Completer for Commands {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let found = candidates(&line[..pos]).map(|spec| Pair {
            display: format!("/{}  {}", spec.word, spec.help),
            replacement: format!("/{}{}", spec.word, if spec.args.is_empty() { "" } else { " " }),
        });
        Ok((0, found.collect()))
    }
}

impl Hinter for Commands {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<String> {
        if pos < line.len() || line.len() < 2 {
            return None;
        }
        candidates(line).next().map(|spec| spec.word[line.len() - 1..].to_owned())
    }
}

impl Highlighter for Commands {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never {
            return Cow::Borrowed(hint);
        }
        Cow::Owned(styled(DIM, hint))
    }
}

impl Validator for Commands {}

impl Helper for Commands {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_offers_commands_and_text_offers_nothing() {
        let words = |line: &str| candidates(line).map(|spec| spec.word).collect::<Vec<_>>();
        assert!(words("/").len() >= 12);
        assert_eq!(words("/se"), ["sessions", "sethome"]);
        assert!(words("hello").is_empty() && words("/queue x").is_empty());
    }
}
