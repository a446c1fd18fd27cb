//! The shell's language, as far as it must be understood to say what a command does.
//!
//! The parser is our own. Of the crates, one is recursive without a bound (a line of brackets would end the
//! process), one has the wrong licence, one brings a C compiler; and all of them refuse what they cannot
//! read, where we need what came before. This one is bounded in depth and keeps what it understood.

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

/// Brackets, substitutions and quotes within each other. Beyond it a command is refused, not guessed at.
pub(super) const MOST_DEPTH: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Not the grammar we know. What was read before it still counts.
    Syntax,
    TooDeep,
}

/// What was understood, and what ended the reading early.
#[derive(Debug)]
pub(super) struct Program {
    pub script: Script,
    pub trouble: Option<Trouble>,
}

/// Chains one after the other.
#[derive(Debug, Default)]
pub(super) struct Script(pub Vec<Chain>);

/// Pipelines joined by `&&` and `||`: only the first one is sure to run.
#[derive(Debug)]
pub(super) struct Chain {
    pub pipelines: Vec<Vec<Command>>,
    pub background: bool,
}

#[derive(Debug)]
pub(super) struct Command {
    pub kind: Kind,
    pub redirects: Vec<Redirect>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Simple {
        assigns: Vec<Assign>,
        words: Vec<Word>,
    },
    Subshell(Script),
    Group(Script),
    /// `if`, `while`, `until`, `case`: any of them may run. The words are evaluated in any case.
    Branches(Vec<Word>, Vec<Script>),
    For {
        name: String,
        words: Vec<Word>,
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
    pub value: Vec<Word>,
}

#[derive(Debug)]
pub(super) enum Redirect {
    Read(Word),
    Write(Word),
    /// The body stands on the lines after the command, so it is filled in later.
    Document(Rc<OnceCell<Word>>),
    Text(Word),
}

pub(super) type Word = Vec<Piece>;

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
    /// Something that is computed; the words in it are evaluated for what they run.
    Computed(Vec<Word>),
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Plain,
    /// `:-`, `-`, `:=`, `=`
    Otherwise(Box<Word>),
    /// `:+`, `+`
    Instead(Box<Word>),
    Slice(Box<Word>),
    /// `#`, `##`, `%`, `%%`
    Trim {
        sign: char,
        longest: bool,
        pattern: Box<Word>,
    },
    Lower,
    Upper,
    Indirect,
    /// What is not worth computing; the operand is still evaluated.
    Other(Box<Word>),
}
