//! The `memory` tool: facts for later conversations.

use petasos_core::person::Person;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CancelFlag, SessionCtx, ToolOutcome};
use crate::memory::{Memory, MemoryChange, MemoryFile};
use crate::tools::registry::arguments::{Object, required};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const MAX_CHANGES: usize = 20;

pub(super) fn tool() -> Definition {
    Definition {
        name: "memory",
        description: "Saves short facts for later conversations; your instructions contain those that existed when this conversation began. Save what will matter in weeks, not what happened today. Never save secrets.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::People,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct MemoryArguments {
    /// memory: what you learned about the work and its surroundings; user: who the user is and what they prefer
    #[schemars(extend("enum" = ["memory", "user"]))]
    target: String,
    action: Option<MemoryAction>,
    /// The new entry (add, replace): one fact, short
    content: Option<String>,
    /// Part of the entry to change (replace, remove)
    old_text: Option<String>,
    /// Several changes at once, all or none: objects with action, content, old_text
    #[schemars(with = "Option<Vec<Object>>")]
    operations: Option<Vec<MemoryOperation>>,
}

#[derive(Deserialize)]
struct MemoryOperation {
    action: Option<MemoryAction>,
    content: Option<String>,
    old_text: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MemoryAction {
    Add,
    Replace,
    Remove,
    Show,
}

fn run(ctx: &SessionCtx, arguments: &MemoryArguments, _cancel: &CancelFlag) -> ToolOutcome {
    let file = MemoryFile::parse(&arguments.target).ok_or("target is memory or user.")?;
    let memory = Memory::of(&ctx.home, &Person::of(&ctx.source, &ctx.key));
    let changes: Vec<_> = match &arguments.operations {
        None => vec![change(arguments.action, &arguments.content, &arguments.old_text)?],
        Some(many) if many.len() > MAX_CHANGES => {
            return Err(format!("At most {MAX_CHANGES} operations at once."));
        }
        Some(many) => many
            .iter()
            .map(|one| change(one.action, &one.content, &one.old_text))
            .collect::<Result<_, _>>()?,
    };
    let changes: Vec<_> = changes.into_iter().flatten().collect();
    let entries = if changes.is_empty() {
        memory.entries(file).map_err(|error| format!("The memory cannot be read: {error}"))?
    } else {
        memory.change(file, &changes)?
    };
    let used: usize = entries.iter().map(|entry| entry.chars().count() + 3).sum();
    Ok(json!({
        "success": true,
        "entries": entries,
        "used": format!("{} of {} characters", used.saturating_sub(3), file.capacity()),
    }))
}

/// `None` if nothing changes.
fn change(
    action: Option<MemoryAction>,
    content: &Option<String>,
    old_text: &Option<String>,
) -> Result<Option<MemoryChange>, String> {
    let content = || required(content, "content").map(str::to_owned);
    let old_text = || required(old_text, "old_text").map(str::to_owned);
    Ok(match action.unwrap_or(MemoryAction::Show) {
        MemoryAction::Add => Some(MemoryChange::Add(content()?)),
        MemoryAction::Replace => Some(MemoryChange::Replace(old_text()?, content()?)),
        MemoryAction::Remove => Some(MemoryChange::Remove(old_text()?)),
        MemoryAction::Show => None,
    })
}
