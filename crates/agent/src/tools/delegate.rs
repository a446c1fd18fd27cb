//! `delegate_task`: work that is given to others, each in a conversation of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Arguments, Outcome, SessionCtx};

/// Whoever has work done by others.
pub trait Delegate: fmt::Debug + Send + Sync {
    /// How many tasks one call may name.
    fn most(&self) -> usize;

    /// Has them done, and gives what the model is told: the results, or that they will come. Dropping the future stops
    /// what it waits for.
    fn delegate<'a>(
        &'a self,
        ctx: &'a SessionCtx,
        tasks: Vec<Task>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub goal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default)]
    pub role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Leaf,
    /// It may delegate in turn, if that is allowed.
    Orchestrator,
}

/// Characters of a goal, and of what is said with it.
const MOST_TEXT: usize = 50_000;

pub(super) async fn run(delegate: &dyn Delegate, ctx: &SessionCtx, arguments: &Arguments) -> Outcome {
    let tasks = read(arguments, delegate.most())?;
    delegate.delegate(ctx, tasks).await
}

fn read(arguments: &Arguments, most: usize) -> Result<Vec<Task>, String> {
    let tasks = match arguments.0.get("tasks") {
        None | Some(Value::Null) => vec![],
        Some(Value::Array(tasks)) => tasks.clone(),
        // Some models write the list as a text.
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|_quotes_text| "The argument \"tasks\" must be a list of tasks.".to_owned())?,
        Some(_) => return Err("The argument \"tasks\" must be a list of tasks.".to_owned()),
    };
    let tasks = match (tasks.is_empty(), arguments.maybe("goal")?) {
        (false, _) => tasks,
        (true, Some(_)) => vec![Value::Object(arguments.0.clone())],
        (true, None) => return Err("Name a goal, or tasks with a goal each.".to_owned()),
    };
    if tasks.len() > most {
        return Err(format!(
            "Too many tasks: {} were given, and at most {most} may run at the same time \
             (delegation.max_concurrent_children). None was started.",
            tasks.len()
        ));
    }
    tasks.iter().enumerate().map(|(at, task)| one(at, task)).collect()
}

fn one(at: usize, task: &Value) -> Result<Task, String> {
    let Value::Object(task) = task else {
        return Err(format!("Task {at} is not an object with a goal."));
    };
    let text = |name: &str| cut(task, name);
    let goal = text("goal").ok_or_else(|| format!("Task {at} has no goal."))?;
    let role = match task.get("role").and_then(Value::as_str) {
        Some("orchestrator") => Role::Orchestrator,
        Some(_) | None => Role::Leaf,
    };
    Ok(Task { goal, context: text("context"), role })
}

fn cut(task: &Map<String, Value>, name: &str) -> Option<String> {
    let text = task.get(name)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.chars().take(MOST_TEXT).collect())
}

pub(super) fn schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "goal": {"type": "string", "description": "What is to be done, for one task"},
            "context": {"type": "string", "description": "Everything the other needs to know: it sees nothing of this conversation"},
            "tasks": {
                "type": "array",
                "description": "Several tasks that are done at the same time",
                "items": {
                    "type": "object",
                    "properties": {
                        "goal": {"type": "string"},
                        "context": {"type": "string"},
                        "role": {"type": "string", "enum": ["leaf", "orchestrator"]},
                    },
                    "required": ["goal"],
                },
            },
            "role": {"type": "string", "enum": ["leaf", "orchestrator"]},
        },
    });
    (
        "Gives work to subagents, each with a conversation and a terminal of its own. They know nothing of this one: say \
         everything they need. Where the channel allows it the work goes on in the background, and its results come as a \
         message of their own.",
        parameters,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(arguments: Value) -> Result<Vec<Task>, String> {
        let Value::Object(map) = arguments else { panic!("an object") };
        read(&Arguments(map), 3)
    }

    #[test]
    fn one_goal_several_tasks_or_a_list_written_as_a_text() {
        let one = tasks(json!({"goal": " count ", "context": "to ten", "role": "boss"})).unwrap();
        assert_eq!(one, [Task { goal: "count".into(), context: Some("to ten".into()), role: Role::Leaf }]);
        let two = json!([{"goal": "a", "role": "orchestrator"}, {"goal": "b"}]);
        let read = tasks(json!({"tasks": two})).unwrap();
        assert_eq!((read.len(), read[0].role), (2, Role::Orchestrator));
        assert_eq!(tasks(json!({"tasks": two.to_string()})).unwrap(), read);
    }

    #[test]
    fn what_cannot_be_done_is_said_and_nothing_is_started() {
        let four = json!([{"goal": "a"}, {"goal": "b"}, {"goal": "c"}, {"goal": "d"}]);
        for (arguments, want) in [
            (json!({}), "Name a goal"),
            (json!({"tasks": four}), "delegation.max_concurrent_children"),
            (json!({"tasks": [{"context": "x"}]}), "Task 0 has no goal"),
            (json!({"tasks": ["x"]}), "Task 0 is not an object"),
            (json!({"tasks": "nonsense"}), "list of tasks"),
        ] {
            let error = tasks(arguments.clone()).unwrap_err();
            assert!(error.contains(want), "{arguments}: {error}");
        }
    }
}
