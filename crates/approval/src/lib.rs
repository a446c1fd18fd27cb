//! Approvals: what a shell command would do, and who has to agree first.
//!
//! `assess` parses a command as a shell does (quotes, variables, substitutions, wrappers, nested shells) and returns
//! whether it is harmless, needs approval, or is forbidden. `decide` combines that with the owner's configuration and
//! earlier approvals. `request` is the life cycle of one approval request.
//!
//! Invariants: a command that cannot be parsed is never harmless. Forbidden commands are found before all other checks, so
//! no approval and no mode permits them. Time and memory are bounded for any input.
//!
//! This is no sandbox: only the command line is assessed. What a started program can do is limited by `petasos-sandbox`;
//! [`Confinement`] says whether it is.
#![no_std]

extern crate alloc;

mod analysis;
mod category;
mod display;
mod messages;
mod policy;
mod request;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

pub use category::{Category, Hardline};
pub use display::{MAX_DISPLAY_CHARS, display, display_line};
pub use messages::{AnswerMethod, CommandSummary, OfferedChoices, buttons, outcome_text, question_text};
pub use policy::{Audience, Confinement, Decision, Policy, RefuseReason, ReviewMode, RunReason, decide};
pub use request::{
    ApprovalOutcome, ApprovalReply, ApprovalRequest, ButtonData, Choice, Event, MAX_PENDING, QueueEffect,
    RememberedApprovals, RequestQueue, RequestSelector, TIMEOUT, request_id,
};

/// Longer commands are refused without parsing.
pub const MAX_COMMAND_CHARS: usize = 128_000;

#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    pub home: &'a str,
    /// The working directory; empty if unknown.
    pub cwd: &'a str,
    /// The folder with the gateway's settings and data.
    pub gateway_home: &'a str,
    /// A folder that the agent may write to, also within the gateway's home.
    pub workspace: &'a str,
    /// Resolves all links of an absolute path; `None` if that fails. Without this function, paths are taken literally.
    pub resolve_links: Option<fn(&str) -> Option<String>>,
    /// The gateway and its supervisors.
    pub gateway_pids: &'a [u32],
    /// A password for `sudo -S` is configured.
    pub sudo_password: bool,
    /// The standard input stays open for later input, which is not assessed.
    pub stdin_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    Harmless,
    NeedsApproval(Vec<Category>),
    Forbidden(Hardline),
}

#[must_use]
pub fn assess(command: &str, context: &Context) -> Assessment {
    if command.len() > 4 * MAX_COMMAND_CHARS || command.chars().count() > MAX_COMMAND_CHARS {
        return Assessment::Forbidden(Hardline::TooLarge);
    }
    let cleaned = analysis::text::clean(command);
    let mut found = BTreeSet::new();
    if cleaned.hidden {
        found.insert(Category::HiddenText);
    }
    match analysis::walk::walk_command(&cleaned.plain, context) {
        Err(hardline) => return Assessment::Forbidden(hardline),
        Ok(more) => found.extend(more),
    }
    // The folded text is not what runs, so a parse error in it means nothing.
    match cleaned.folded.map(|folded| analysis::walk::walk_command(&folded, context)) {
        Some(Err(hardline)) => return Assessment::Forbidden(hardline),
        Some(Ok(more)) => found.extend(more.into_iter().filter(|category| category.can_be_remembered())),
        None => {}
    }
    if found.is_empty() {
        Assessment::Harmless
    } else {
        Assessment::NeedsApproval(found.into_iter().collect())
    }
}

/// The sentences of an assessment, for the approver.
#[must_use]
pub fn describe(categories: &[Category]) -> String {
    let sentences: Vec<_> = categories.iter().map(|category| category.sentence()).collect();
    sentences.join(" ")
}
