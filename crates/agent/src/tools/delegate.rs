//! The `delegate_task` tool: gives work to subagents.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{SessionCtx, ToolOutcome, Tools};
use crate::tools::registry::arguments::parse;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

pub trait SubagentRunner: fmt::Debug + Send + Sync {
    fn max_tasks(&self) -> usize;

    /// Runs the tasks; returns their results, or a notice that the results will follow. Dropping the future
    /// stops the tasks it waits for.
    fn delegate<'a>(
        &'a self,
        ctx: &'a SessionCtx,
        tasks: Vec<DelegatedTask>,
    ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegatedTask {
    pub goal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default)]
    pub role: SubagentRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubagentRole {
    #[default]
    Leaf,
    // May delegate in turn, if that is allowed. No doc comment: it would be in the schema.
    Orchestrator,
}

/// Characters of a goal, and of its context.
const MAX_TEXT: usize = 50_000;

pub(super) fn tool() -> Definition {
    Definition {
        name: "delegate_task",
        description: "Gives work to subagents, each with a conversation and a terminal of its own. They know nothing of this one: say \
         everything they need. Where the channel allows it, the work continues in the background, and you receive its results as a \
         separate message.",
        toolset: Toolset::Other,
        service: Service::Delegation,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::Subagents,
        runner: Runner::new(|tools, ctx, arguments| Box::pin(run(tools, ctx, arguments))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct DelegateTaskArguments {
    /// Goal, for a single task
    goal: Option<String>,
    /// Everything the subagent needs to know: it sees nothing of this conversation
    context: Option<String>,
    /// Several tasks to run at the same time
    #[schemars(with = "Option<Vec<TaskArguments>>")]
    tasks: Option<Value>,
    #[serde(default, deserialize_with = "role")]
    role: Option<SubagentRole>,
}

#[derive(Deserialize, JsonSchema)]
struct TaskArguments {
    #[schemars(required)]
    goal: Option<String>,
    context: Option<String>,
    #[serde(default, deserialize_with = "role")]
    role: Option<SubagentRole>,
}

/// An unknown role becomes the one with fewer rights.
fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SubagentRole>, D::Error> {
    Ok(SubagentRole::deserialize(Value::deserialize(deserializer)?).ok())
}

async fn run(tools: &Tools, ctx: &SessionCtx, arguments: DelegateTaskArguments) -> ToolOutcome {
    let runner = tools.delegate.as_deref().ok_or("Delegation is not available here.")?;
    let tasks = parse_tasks(arguments, runner.max_tasks())?;
    runner.delegate(ctx, tasks).await
}

fn parse_tasks(arguments: DelegateTaskArguments, limit: usize) -> Result<Vec<DelegatedTask>, String> {
    let not_a_list = || "The argument \"tasks\" must be a list of tasks.".to_owned();
    let tasks = match arguments.tasks {
        None => vec![],
        Some(Value::Array(tasks)) => tasks,
        // Some models send the list as a JSON string.
        Some(Value::String(text)) => serde_json::from_str(&text).map_err(|_quotes_text| not_a_list())?,
        Some(_) => return Err(not_a_list()),
    };
    if tasks.is_empty() && arguments.goal.is_none() {
        return Err("Name a goal, or tasks with a goal each.".to_owned());
    }
    let count = tasks.len().max(1);
    if count > limit {
        return Err(format!(
            "Too many tasks: {count} were given, and at most {limit} may run at the same time \
             (delegation.max_concurrent_children). None was started."
        ));
    }
    if tasks.is_empty() {
        let DelegateTaskArguments { goal, context, role, .. } = arguments;
        return Ok(vec![task(0, TaskArguments { goal, context, role })?]);
    }
    let parsed = |(at, value)| match value {
        Value::Object(object) => task(at, parse(object).map_err(|reason| format!("Task {at}: {reason}"))?),
        _ => Err(format!("Task {at} is not an object with a goal.")),
    };
    tasks.into_iter().enumerate().map(parsed).collect()
}

fn task(at: usize, TaskArguments { goal, context, role }: TaskArguments) -> Result<DelegatedTask, String> {
    let goal = goal.and_then(truncate).ok_or_else(|| format!("Task {at} has no goal."))?;
    Ok(DelegatedTask { goal, context: context.and_then(truncate), role: role.unwrap_or_default() })
}

fn truncate(text: String) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.chars().take(MAX_TEXT).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tasks(arguments: Value) -> Result<Vec<DelegatedTask>, String> {
        let Value::Object(map) = arguments else { panic!("an object") };
        parse_tasks(parse(map)?, 3)
    }

    #[test]
    fn accepts_one_goal_several_tasks_or_a_list_as_text() {
        let one = tasks(json!({"goal": " count ", "context": "to ten", "role": "boss"})).unwrap();
        assert_eq!(
            one,
            [DelegatedTask {
                goal: "count".into(),
                context: Some("to ten".into()),
                role: SubagentRole::Leaf
            }]
        );
        let two = json!([{"goal": "a", "role": "orchestrator"}, {"goal": "b"}]);
        let read = tasks(json!({"tasks": two})).unwrap();
        assert_eq!((read.len(), read[0].role), (2, SubagentRole::Orchestrator));
        assert_eq!(tasks(json!({"tasks": two.to_string()})).unwrap(), read);
    }

    #[test]
    fn rejects_invalid_tasks_and_starts_none() {
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
