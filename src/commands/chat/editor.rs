//! The line editor: history, completion of slash commands. It blocks, so it works on a thread of its own.

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

/// `None` while a line is being read.
pub(super) struct Editor {
    lines: Option<Lines>,
    history: PathBuf,
}

impl Editor {
    pub(super) fn new(history: PathBuf) -> Result<Self, Failure> {
        let config =
            Config::builder().auto_add_history(true).max_history_size(HISTORY).map_err(failed)?.build();
        let mut lines = Lines::with_config(config).map_err(failed)?;
        lines.set_helper(Some(Commands));
        // A history that cannot be read is an empty one.
        let _ = lines.load_history(&history);
        Ok(Self { lines: Some(lines), history })
    }

    pub(super) async fn read(&mut self) -> Result<Input, Failure> {
        let Some(mut lines) = self.lines.take() else {
            return Ok(Input::End);
        };
        let path = self.history.clone();
        let read = tokio::task::spawn_blocking(move || {
            let read = lines.readline(PROMPT);
            // Losing the history costs some typing, nothing else.
            let _ = lines.append_history(&path);
            (lines, read)
        });
        let (lines, read) =
            read.await.map_err(|error| Failure::new(format!("the line editor failed: {error}")))?;
        self.lines = Some(lines);
        match read {
            Ok(line) => Ok(Input::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(failed(error)),
        }
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
        assert_eq!(words("/se"), ["sessions"]);
        assert!(words("hello").is_empty() && words("/queue x").is_empty());
    }
}
