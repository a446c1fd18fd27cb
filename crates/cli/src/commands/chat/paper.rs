//! Where a conversation is written: above the line that is being typed, if there is one.

use std::fmt;
use std::io::Write;

use rustyline::ExternalPrinter;

/// Lines longer than this are hard to read.
const WIDEST: usize = 110;
const USUAL: usize = 80;

pub(super) enum Paper {
    None,
    Stdout {
        width: usize,
    },
    /// The line editor takes its line away, lets us print, and draws it again.
    Above {
        printer: Box<dyn ExternalPrinter + Send>,
        width: usize,
    },
}

impl Paper {
    pub(super) fn stdout(columns: Option<usize>) -> Self {
        Self::Stdout { width: fit(columns) }
    }

    pub(super) fn above(printer: Box<dyn ExternalPrinter + Send>, columns: Option<usize>) -> Self {
        Self::Above { printer, width: fit(columns) }
    }

    pub(super) fn width(&self) -> usize {
        match self {
            Self::None => USUAL,
            Self::Stdout { width } | Self::Above { width, .. } => *width,
        }
    }

    /// Whole lines. A terminal that is gone takes the conversation with it; there is nobody to tell.
    pub(super) fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self {
            Self::None => {}
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
    columns.filter(|columns| *columns > 0).unwrap_or(USUAL).min(WIDEST)
}

impl fmt::Debug for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Stdout { .. } => "Stdout",
            Self::Above { .. } => "Above",
        })
    }
}
