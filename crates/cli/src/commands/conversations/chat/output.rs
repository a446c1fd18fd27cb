//! Output of a conversation: discarded, to standard output, or above the line editor's input.

use std::fmt;
use std::io::Write;

use rustyline::ExternalPrinter;

const MAX_WIDTH: usize = 110;
const DEFAULT_WIDTH: usize = 80;

pub(super) enum Output {
    Discard,
    Stdout {
        width: usize,
    },
    /// The line editor hides its input line, prints, and draws it again.
    Above {
        printer: Box<dyn ExternalPrinter + Send>,
        width: usize,
    },
}

impl Output {
    pub(super) fn stdout(columns: Option<usize>) -> Self {
        Self::Stdout { width: fit(columns) }
    }

    pub(super) fn above(printer: Box<dyn ExternalPrinter + Send>, columns: Option<usize>) -> Self {
        Self::Above { printer, width: fit(columns) }
    }

    pub(super) fn width(&self) -> usize {
        match self {
            Self::Discard => DEFAULT_WIDTH,
            Self::Stdout { width } | Self::Above { width, .. } => *width,
        }
    }

    /// Prints whole lines and ignores a closed terminal.
    pub(super) fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self {
            Self::Discard => {}
            Self::Stdout { .. } => {
                let mut out = anstream::stdout().lock();
                let _terminal_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            Self::Above { printer, .. } => {
                let colours = anstream::AutoStream::choice(&std::io::stdout());
                let text = match colours {
                    anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
                    _ => text.to_owned(),
                };
                let _terminal_gone = printer.print(text);
            }
        }
    }
}

fn fit(columns: Option<usize>) -> usize {
    columns.filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH).min(MAX_WIDTH)
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discard => "Discard",
            Self::Stdout { .. } => "Stdout",
            Self::Above { .. } => "Above",
        })
    }
}
