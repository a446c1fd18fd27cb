//! The shell grammar, as far as the analysis needs it.
//!
//! The parser is our own: existing crates recurse without a bound, have an incompatible licence or need a C compiler, and
//! all of them discard the text before a syntax error. This parser is bounded in depth and keeps what it has parsed.

mod parse;
mod redirect;
mod scan;
mod word;

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

pub(super) use parse::parse;

/// Maximum nesting of brackets, substitutions and quotes. Deeper commands are refused.
pub(super) const MAX_DEPTH: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseError {
    /// Unknown grammar. The text parsed before it still counts.
    Syntax,
    TooDeep,
}

/// The parsed script and the error that ended the parsing.
#[derive(Debug)]
pub(super) struct Program {
    pub script: Script,
    pub error: Option<ParseError>,
}

#[derive(Debug, Default)]
pub(super) struct Script(pub Vec<Chain>);

/// Pipelines joined by `&&` and `||`, of which only the first one certainly runs.
#[derive(Debug)]
pub(super) struct Chain {
    pub pipelines: Vec<Vec<ShellCommand>>,
    pub background: bool,
}

#[derive(Debug)]
pub(super) struct ShellCommand {
    pub kind: Kind,
    pub redirects: Vec<Redirect>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Simple {
        assigns: Vec<Assign>,
        words: Vec<ShellWord>,
    },
    Subshell(Script),
    Group(Script),
    /// `if`, `while`, `until`, `case`: any branch may run; the words are always evaluated.
    Branches(Vec<ShellWord>, Vec<Script>),
    For {
        name: String,
        words: Vec<ShellWord>,
        body: Script,
    },
    Function {
        name: String,
        body: Rc<Script>,
    },
}

#[derive(Debug)]
pub(super) struct Assign {
    pub name: String,
    pub append: bool,
    /// More than one only for `name=(…)`.
    pub value: Vec<ShellWord>,
}

#[derive(Debug)]
pub(super) enum Redirect {
    Read(ShellWord),
    Write(ShellWord),
    /// The body follows on later lines and is filled in then.
    Document(Rc<OnceCell<ShellWord>>),
    Text(ShellWord),
}

pub(super) type ShellWord = Vec<Piece>;

#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text {
        text: String,
        quoted: bool,
    },
    Parameter {
        name: String,
        op: Op,
        quoted: bool,
    },
    Output {
        script: Rc<Script>,
        quoted: bool,
    },
    /// `<(…)`: a file whose content is the output.
    Source(Rc<Script>),
    /// `>(…)`: a file that feeds the script.
    Sink(Rc<Script>),
    /// A computed value; its words are evaluated for the commands in them.
    Computed(Vec<ShellWord>),
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Plain,
    /// `:-`, `-`, `:=`, `=`
    Otherwise(Box<ShellWord>),
    /// `:+`, `+`
    Instead(Box<ShellWord>),
    Slice(Box<ShellWord>),
    /// `#`, `##`, `%`, `%%`
    Trim {
        sign: char,
        longest: bool,
        pattern: Box<ShellWord>,
    },
    Lower,
    Upper,
    Indirect,
    /// Not computed; the operand is still evaluated.
    Other(Box<ShellWord>),
}
