//! What a session wants to hear of a background process, and what it can be promised.

use serde_json::{Value, json};

use super::record::Promise;
use super::{Arguments, watch};
use crate::tools::SessionCtx;

/// What the model wants to hear of a background process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    completion: bool,
    lines: Vec<String>,
}

impl Wish {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, String> {
        let lines = arguments.watch_patterns.iter().flatten().cloned();
        let lines: Vec<_> = lines.filter(|pattern| !pattern.is_empty()).collect();
        if lines.len() > watch::PATTERNS || lines.iter().any(|it| it.chars().count() > watch::PATTERN) {
            return Err(format!(
                "watch_patterns must be at most {} texts of at most {} characters.",
                watch::PATTERNS,
                watch::PATTERN
            ));
        }
        Ok(Self { completion: arguments.notify_on_complete, lines })
    }

    /// What can be promised: nothing that comes later, where nothing can come later.
    pub(super) fn promise(&self, ctx: &SessionCtx) -> Promise {
        match (ctx.delivers_later(), self.completion, self.lines.as_slice()) {
            (false, _, _) | (true, false, []) => Promise::Nothing,
            (true, true, _) => Promise::Completion,
            (true, false, lines) => Promise::Lines { patterns: lines.to_vec(), told: 0 },
        }
    }

    /// Tells the model what it was promised.
    pub(super) fn say(&self, promise: &Promise, result: &mut Value) {
        match promise {
            Promise::Completion => {
                result["notify_on_complete"] = true.into();
                if !self.lines.is_empty() {
                    result["watch_patterns_ignored"] =
                        "notify_on_complete was asked for as well: you are told once, when the process ends."
                            .into();
                }
            }
            Promise::Lines { patterns, .. } => result["watch_patterns"] = json!(patterns),
            Promise::Nothing if self.completion || !self.lines.is_empty() => {
                result["notify_on_complete"] = false.into();
                result["notify_unsupported"] = NOT_LATER.into();
            }
            Promise::Nothing => result["hint"] = SILENT.into(),
        }
    }
}

const NOT_LATER: &str = "This session cannot receive anything after its response, so you will not be told when the \
process ends. It is running: ask with process(action='poll'), or process(action='wait') before you answer.";
const SILENT: &str = "You will not be told when it ends. Ask with process(action='poll'), or start it with \
notify_on_complete=true.";
