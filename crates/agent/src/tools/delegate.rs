//! `delegate_task`: work that is given to others, each in a conversation of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::arguments::parse;
use super::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use super::{Outcome, SessionCtx, Tools};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Leaf,
    // It may delegate in turn, if that is allowed. No doc comment: it would be in the schema.
    Orchestrator,
}

/// Characters of a goal, and of what is said with it.
const MOST_TEXT: usize = 50_000;

pub(super) fn tool() -> Definition {
    Definition {
        name: "delegate_task",
        description: "Gives work to subagents, each with a conversation and a terminal of its own. They know nothing of this one: say \
         everything they need. Where the channel allows it the work goes on in the background, and its results come as a \
         message of their own.",
        toolset: Toolset::Other,
        service: Service::Delegation,
        effects: Effects::Anything,
        reach: Reach::Subagents,
        runner: Runner::new(|tools, ctx, arguments| Box::pin(run(tools, ctx, arguments))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// What is to be done, for one task
    goal: Option<String>,
    /// Everything the other needs to know: it sees nothing of this conversation
    context: Option<String>,
    /// Several tasks that are done at the same time
    #[schemars(with = "Option<Vec<TaskArguments>>")]
    tasks: Option<Value>,
    #[serde(default, deserialize_with = "role")]
    role: Option<Role>,
}

#[derive(Deserialize, JsonSchema)]
struct TaskArguments {
    #[schemars(required)]
    goal: Option<String>,
    context: Option<String>,
    #[serde(default, deserialize_with = "role")]
    role: Option<Role>,
}

/// A role that is not known is the one with fewer rights.
fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Role>, D::Error> {
    Ok(Role::deserialize(Value::deserialize(deserializer)?).ok())
}

async fn run(tools: &Tools, ctx: &SessionCtx, arguments: Arguments) -> Outcome {
    let delegate = tools.delegate.as_deref().ok_or("Nobody is there to delegate to.")?;
    let tasks = read(arguments, delegate.most())?;
    delegate.delegate(ctx, tasks).await
}

fn read(arguments: Arguments, most: usize) -> Result<Vec<Task>, String> {
    let not_a_list = || "The argument \"tasks\" must be a list of tasks.".to_owned();
    let tasks = match arguments.tasks {
        None => vec![],
        Some(Value::Array(tasks)) => tasks,
        // Some models write the list as a text.
        Some(Value::String(text)) => serde_json::from_str(&text).map_err(|_quotes_text| not_a_list())?,
        Some(_) => return Err(not_a_list()),
    };
    if tasks.is_empty() && arguments.goal.is_none() {
        return Err("Name a goal, or tasks with a goal each.".to_owned());
    }
    let count = tasks.len().max(1);
    if count > most {
        return Err(format!(
            "Too many tasks: {count} were given, and at most {most} may run at the same time \
             (delegation.max_concurrent_children). None was started."
        ));
    }
    if tasks.is_empty() {
        let Arguments { goal, context, role, .. } = arguments;
        return Ok(vec![task(0, TaskArguments { goal, context, role })?]);
    }
    let parsed = |(at, value)| match value {
        Value::Object(object) => task(at, parse(object).map_err(|reason| format!("Task {at}: {reason}"))?),
        _ => Err(format!("Task {at} is not an object with a goal.")),
    };
    tasks.into_iter().enumerate().map(parsed).collect()
}

fn task(at: usize, TaskArguments { goal, context, role }: TaskArguments) -> Result<Task, String> {
    let goal = goal.and_then(cut).ok_or_else(|| format!("Task {at} has no goal."))?;
    Ok(Task { goal, context: context.and_then(cut), role: role.unwrap_or_default() })
}

fn cut(text: String) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.chars().take(MOST_TEXT).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tasks(arguments: Value) -> Result<Vec<Task>, String> {
        let Value::Object(map) = arguments else { panic!("an object") };
        read(parse(map)?, 3)
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
