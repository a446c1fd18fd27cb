//! Notifications requested for a background process, and what the channel can deliver.

use serde_json::{Value, json};

use super::record::NotifyMode;
use super::watch;
use crate::terminal::TerminalArguments;
use crate::tools::SessionCtx;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::terminal) struct NotificationRequest {
    completion: bool,
    lines: Vec<String>,
}

impl NotificationRequest {
    pub(in crate::terminal) fn of(arguments: &TerminalArguments) -> Result<Self, String> {
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

    /// Nothing, if the channel cannot deliver after the response.
    pub(in crate::terminal) fn resolve(&self, ctx: &SessionCtx) -> NotifyMode {
        match (ctx.supports_async_delivery(), self.completion, self.lines.as_slice()) {
            (false, _, _) | (true, false, []) => NotifyMode::Nothing,
            (true, true, _) => NotifyMode::Completion,
            (true, false, lines) => NotifyMode::Lines { patterns: lines.to_vec(), reported: 0 },
        }
    }

    /// Adds the promised notifications to the tool result.
    pub(in crate::terminal) fn describe(&self, notify: &NotifyMode, result: &mut Value) {
        match notify {
            NotifyMode::Completion => {
                result["notify_on_complete"] = true.into();
                if !self.lines.is_empty() {
                    result["watch_patterns_ignored"] =
                        "notify_on_complete was requested as well: you are notified once, when the process ends."
                            .into();
                }
            }
            NotifyMode::Lines { patterns, .. } => result["watch_patterns"] = json!(patterns),
            NotifyMode::Nothing if self.completion || !self.lines.is_empty() => {
                result["notify_on_complete"] = false.into();
                result["notify_unsupported"] = NO_LATER_DELIVERY.into();
            }
            NotifyMode::Nothing => result["hint"] = NO_NOTIFICATION.into(),
        }
    }
}

const NO_LATER_DELIVERY: &str = "This session cannot receive a notification after its response, so you will not be notified when the \
process ends. The process is running: check it with process(action='poll'), or use process(action='wait') before you answer.";
const NO_NOTIFICATION: &str = "You will not be notified when it ends. Check it with process(action='poll'), or start it with \
notify_on_complete=true.";
