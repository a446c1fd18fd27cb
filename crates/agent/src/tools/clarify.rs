//! `clarify`: a question to the person of the turn, and their answer.

use std::time::Duration;

use petasos_approval::{Audience, Ending};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use super::{Outcome, Question, SessionCtx};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3600);
const CHOICES: usize = 8;
/// Characters of a choice, and of the question.
const CHOICE: usize = 200;
const QUESTION: usize = 2000;

pub(super) fn tool() -> Definition {
    Definition {
        name: "clarify",
        description: "Asks the user something and waits for the answer, up to an hour. Only for what you cannot find out or decide yourself.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        reach: Reach::People,
        runner: Runner::new(|_, ctx, arguments| Box::pin(run(ctx, arguments))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    question: String,
    /// Answers to choose from; the user may also answer in their own words
    #[schemars(length(max = CHOICES))]
    choices: Option<Vec<String>>,
}

async fn run(ctx: &SessionCtx, arguments: Arguments) -> Outcome {
    let text = arguments.question.trim();
    if text.is_empty() || text.chars().count() > QUESTION {
        return Err(format!("A question has 1 to {QUESTION} characters."));
    }
    let choices = arguments.choices.unwrap_or_default();
    if choices.len() > CHOICES || choices.iter().any(|choice| choice.chars().count() > CHOICE) {
        return Err(format!("At most {CHOICES} choices of {CHOICE} characters."));
    }
    if ctx.person.audience() != Audience::Person {
        return Err("Nobody can be asked here. Decide yourself, and say what you assumed.".to_owned());
    }
    let question = Question::Clarify { text: text.to_owned(), choices: choices.clone() };
    match ctx.ask(question, PATIENCE).await {
        Ending::Said { text } => {
            Ok(json!({"question": arguments.question, "choices_offered": choices, "user_response": text}))
        }
        Ending::TimedOut => {
            Err("Nobody answered within an hour. Go on with your best judgement, or stop and say so."
                .to_owned())
        }
        Ending::Denied { .. } => Err("The user does not want to answer this.".to_owned()),
        Ending::Lost | Ending::Allowed { .. } => {
            Err("The question was lost before it was answered.".to_owned())
        }
    }
}
