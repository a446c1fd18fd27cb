//! `memory`: what is worth knowing in later conversations.

use petasos_core::person::Person;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{Object, needed};
use super::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use super::{Outcome, SessionCtx, Stop};
use crate::memory::{Change, Memory, Shelf};

/// Changes of one call.
const MOST: usize = 20;

pub(super) fn tool() -> Definition {
    Definition {
        name: "memory",
        description: "Keeps short facts for later conversations; what is there now is in your instructions since the conversation began. Keep what will matter in weeks, not what happened today. Never keep secrets.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        reach: Reach::People,
        runner: Runner::blocking(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// memory: what you learned about the work and its surroundings; user: who the user is and what they prefer
    #[schemars(extend("enum" = ["memory", "user"]))]
    target: String,
    action: Option<Action>,
    /// The new entry (add, replace): one fact, short
    content: Option<String>,
    /// A part of the entry that is meant (replace, remove)
    old_text: Option<String>,
    /// Several changes at once, all or none: objects with action, content, old_text
    #[schemars(with = "Option<Vec<Object>>")]
    operations: Option<Vec<Operation>>,
}

#[derive(Deserialize)]
struct Operation {
    action: Option<Action>,
    content: Option<String>,
    old_text: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Add,
    Replace,
    Remove,
    Show,
}

fn run(ctx: &SessionCtx, arguments: &Arguments, _stop: &Stop) -> Outcome {
    let shelf = Shelf::parse(&arguments.target).ok_or("target is memory or user.")?;
    let memory = Memory::of(&ctx.home, &Person::of(&ctx.source, &ctx.key));
    let changes: Vec<_> = match &arguments.operations {
        None => vec![change(arguments.action, &arguments.content, &arguments.old_text)?],
        Some(many) if many.len() > MOST => return Err(format!("At most {MOST} operations at once.")),
        Some(many) => many
            .iter()
            .map(|one| change(one.action, &one.content, &one.old_text))
            .collect::<Result<_, _>>()?,
    };
    let changes: Vec<_> = changes.into_iter().flatten().collect();
    let entries = match changes.is_empty() {
        true => memory.entries(shelf).map_err(|error| format!("The memory cannot be read: {error}"))?,
        false => memory.change(shelf, &changes)?,
    };
    let used: usize = entries.iter().map(|entry| entry.chars().count() + 3).sum();
    Ok(json!({
        "success": true,
        "entries": entries,
        "used": format!("{} of {} characters", used.saturating_sub(3), shelf.room()),
    }))
}

/// `None`: nothing is to be changed.
fn change(
    action: Option<Action>,
    content: &Option<String>,
    old_text: &Option<String>,
) -> Result<Option<Change>, String> {
    let content = || needed(content, "content").map(str::to_owned);
    let old_text = || needed(old_text, "old_text").map(str::to_owned);
    Ok(match action.unwrap_or(Action::Show) {
        Action::Add => Some(Change::Add(content()?)),
        Action::Replace => Some(Change::Replace(old_text()?, content()?)),
        Action::Remove => Some(Change::Remove(old_text()?)),
        Action::Show => None,
    })
}
