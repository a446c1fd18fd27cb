//! `memory`: what is worth knowing in later conversations.

use petasos_core::person::Person;
use serde_json::{Value, json};

use super::{Arguments, Outcome, SessionCtx, Stop};
use crate::memory::{Change, Memory, Shelf};

/// Changes of one call.
const MOST: usize = 20;

pub(super) fn schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "target": {"type": "string", "enum": ["memory", "user"], "description": "memory: what you learned about the work and its surroundings; user: who the user is and what they prefer"},
            "action": {"type": "string", "enum": ["add", "replace", "remove", "show"]},
            "content": {"type": "string", "description": "The new entry (add, replace): one fact, short"},
            "old_text": {"type": "string", "description": "A part of the entry that is meant (replace, remove)"},
            "operations": {"type": "array", "description": "Several changes at once, all or none: objects with action, content, old_text", "items": {"type": "object"}},
        },
        "required": ["target"],
    });
    (
        "Keeps short facts for later conversations; what is there now is in your instructions since the conversation began. Keep what will matter in weeks, not what happened today. Never keep secrets.",
        parameters,
    )
}

pub(super) fn run(ctx: &SessionCtx, arguments: &Arguments, _stop: &Stop) -> Outcome {
    let shelf = Shelf::parse(arguments.text("target")?).ok_or("target is memory or user.")?;
    let memory = Memory::of(&ctx.home, &Person::of(&ctx.source, &ctx.key));
    let changes = match arguments.0.get("operations") {
        None | Some(Value::Null) => changes(arguments)?.into_iter().collect(),
        Some(Value::Array(many)) => batch(many)?,
        Some(_) => return Err("operations must be a list.".to_owned()),
    };
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

fn batch(many: &[Value]) -> Result<Vec<Change>, String> {
    if many.len() > MOST {
        return Err(format!("At most {MOST} operations at once."));
    }
    let one = |value: &Value| match value {
        Value::Object(map) => changes(&Arguments(map.clone())),
        _ => Err("Each operation is an object.".to_owned()),
    };
    Ok(many.iter().map(one).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// `None`: nothing is to be changed.
fn changes(arguments: &Arguments) -> Result<Option<Change>, String> {
    let (content, old) = (|| arguments.text("content"), || arguments.text("old_text"));
    Ok(match arguments.maybe("action")?.unwrap_or("show") {
        "add" => Some(Change::Add(content()?.to_owned())),
        "replace" => Some(Change::Replace(old()?.to_owned(), content()?.to_owned())),
        "remove" => Some(Change::Remove(old()?.to_owned())),
        "show" => None,
        other => return Err(format!("There is no action {other:?}: add, replace, remove or show.")),
    })
}
