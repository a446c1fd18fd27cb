//! `clarify`: a question to the person of the turn, and their answer.

use std::time::Duration;

use petasos_core::approve::{Audience, Ending};
use serde_json::{Value, json};

use super::{Arguments, Outcome, Question, SessionCtx};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3600);
const CHOICES: usize = 8;
/// Characters of a choice, and of the question.
const CHOICE: usize = 200;
const QUESTION: usize = 2000;

pub(super) fn schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string"},
            "choices": {"type": "array", "items": {"type": "string"}, "description": "Answers to choose from; the user may also answer in their own words", "maxItems": CHOICES},
        },
        "required": ["question"],
    });
    (
        "Asks the user something and waits for the answer, up to an hour. Only for what you cannot find out or decide yourself.",
        parameters,
    )
}

pub(super) async fn run(ctx: &SessionCtx, arguments: &Arguments) -> Outcome {
    let text = arguments.text("question")?.trim();
    if text.is_empty() || text.chars().count() > QUESTION {
        return Err(format!("A question has 1 to {QUESTION} characters."));
    }
    let choices: Vec<String> = match arguments.0.get("choices") {
        None | Some(Value::Null) => vec![],
        Some(Value::Array(many)) => many.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        Some(_) => return Err("choices is a list of texts.".to_owned()),
    };
    if choices.len() > CHOICES || choices.iter().any(|choice| choice.chars().count() > CHOICE) {
        return Err(format!("At most {CHOICES} choices of {CHOICE} characters."));
    }
    if ctx.person.audience() != Audience::Person {
        return Err("Nobody can be asked here. Decide yourself, and say what you assumed.".to_owned());
    }
    let question = Question::Clarify { text: text.to_owned(), choices: choices.clone() };
    match ctx.ask(question, PATIENCE).await {
        Ending::Said { text } => Ok(
            json!({"question": arguments.text("question")?, "choices_offered": choices, "user_response": text}),
        ),
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
