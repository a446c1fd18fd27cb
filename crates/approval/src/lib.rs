//! Approvals: what a shell command would do, and who has to agree before it does.
//!
//! `judge` reads a command as the shell would (quotes, variables, substitutions, wrappers, nested shells) and
//! says whether it is free, needs a person, or never runs. `decide` puts that together with what the owner
//! configured and approved. `request` is the life of one question to a person.
//!
//! Invariants: what cannot be understood is never free. What never runs is found before anything else is
//! asked, so no approval and no mode reaches it. Time and memory are bounded for any input.
//!
//! What is absent: a promise of confinement. A program that is started can do what its user can; this finds
//! what a command line says, in whatever way it says it.
#![no_std]

extern crate alloc;

mod analysis;
mod category;
mod display;
mod policy;
mod request;
mod words;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

pub use category::{Category, Hardline};
pub use display::{MOST_SHOWN, display, display_line};
pub use policy::{Audience, Because, Decision, Mode, Policy, Refusal, decide};
pub use request::{
    Answer, Ask, Choice, Effect, Ending, Event, MOST_WAITING, Queue, Remembered, Reply, TIMEOUT, Which, name,
};
pub use words::{Offer, Subject, buttons, outcome, question};

/// Longer commands are refused unread.
pub const MOST_CHARS: usize = 128_000;

/// What a command would run in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// The home folder of the user who runs commands.
    pub home: &'a str,
    /// Where the command starts; empty when that is not known.
    pub cwd: &'a str,
    /// Where the gateway keeps its settings and data.
    pub gateway_home: &'a str,
    /// Where the agent may write as it likes, also within the gateway's home.
    pub workspace: &'a str,
    /// Says where an absolute path leads when every link is followed; to nothing, if that cannot be told. Without it links
    /// are what they look like.
    pub follow: Option<fn(&str) -> Option<String>>,
    /// The gateway's own process, and whoever supervises it.
    pub gateway_pids: &'a [u32],
    /// A password for `sudo -S` is configured.
    pub sudo_password: bool,
    /// Its input stays open: what it reads is written later, and nobody judges that.
    pub fed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Free,
    /// Somebody has to agree to every one of these. Never empty.
    Ask(Vec<Category>),
    Block(Hardline),
}

/// What would this command do?
#[must_use]
pub fn judge(command: &str, context: &Context) -> Verdict {
    if command.len() > 4 * MOST_CHARS || command.chars().count() > MOST_CHARS {
        return Verdict::Block(Hardline::TooLarge);
    }
    let cleaned = analysis::text::clean(command);
    let mut found = BTreeSet::new();
    if cleaned.hidden {
        found.insert(Category::HiddenText);
    }
    match analysis::walk::read(&cleaned.plain, context) {
        Err(hardline) => return Verdict::Block(hardline),
        Ok(more) => found.extend(more),
    }
    // the folded text is not what runs: that it cannot be read means nothing
    match cleaned.folded.map(|folded| analysis::walk::read(&folded, context)) {
        Some(Err(hardline)) => return Verdict::Block(hardline),
        Some(Ok(more)) => found.extend(more.into_iter().filter(|category| category.is_memorable())),
        None => {}
    }
    if found.is_empty() { Verdict::Free } else { Verdict::Ask(found.into_iter().collect()) }
}

/// The sentences of a verdict, for the person who is asked.
#[must_use]
pub fn describe(categories: &[Category]) -> String {
    let sentences: Vec<_> = categories.iter().map(|category| category.sentence()).collect();
    sentences.join(" ")
}
