//! The `clarify` tool: asks the user a question and waits for the answer.

use std::time::Duration;

use petasos_approval::{ApprovalOutcome, Audience};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::Question;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{SessionCtx, ToolOutcome};

/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);
const CHOICES: usize = 8;
/// Characters of a choice, and of the question.
const CHOICE: usize = 200;
const QUESTION: usize = 2000;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "clarify",
        description: "Asks the user something and waits for the answer, up to an hour. Only for what you cannot find out or decide yourself.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::People,
        runner: Runner::new(|_, ctx, arguments| Box::pin(run(ctx, arguments))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct ClarifyArguments {
    question: String,
    /// Answers to choose from; the user may also answer in their own words
    #[schemars(length(max = CHOICES))]
    choices: Option<Vec<String>>,
}

async fn run(ctx: &SessionCtx, arguments: ClarifyArguments) -> ToolOutcome {
    let text = arguments.question.trim();
    if text.is_empty() || text.chars().count() > QUESTION {
        return Err(format!("A question has 1 to {QUESTION} characters."));
    }
    let choices = arguments.choices.unwrap_or_default();
    if choices.len() > CHOICES || choices.iter().any(|choice| choice.chars().count() > CHOICE) {
        return Err(format!("At most {CHOICES} choices of {CHOICE} characters."));
    }
    if ctx.respondent.audience() != Audience::Person {
        return Err("No user can be asked here. Decide yourself, and say what you assumed.".to_owned());
    }
    let question = Question::Clarify { text: text.to_owned(), choices: choices.clone() };
    match ctx.ask(question, ANSWER_TIMEOUT).await {
        ApprovalOutcome::Answered { text } => {
            Ok(json!({"question": arguments.question, "choices_offered": choices, "user_response": text}))
        }
        ApprovalOutcome::TimedOut => Err(
            "The user did not answer within an hour. Continue with your best judgement, or stop and say so."
                .to_owned(),
        ),
        ApprovalOutcome::Denied { .. } => Err("The user does not want to answer this.".to_owned()),
        ApprovalOutcome::Lost | ApprovalOutcome::Allowed { .. } => {
            Err("The question was lost before it was answered.".to_owned())
        }
    }
}
