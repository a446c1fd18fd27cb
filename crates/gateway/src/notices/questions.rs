//! Questions to people and what became of them. Texts about commands are in `petasos_approval`.

use std::fmt::Display;

pub(crate) const NOTHING_WAITS: &str = "Nothing is waiting for your answer here.";
pub(crate) const ASKED_ELSEWHERE: &str = "🚫 This question is for another person, in another chat.";

pub(crate) const QUESTIONS_OFF: &str = "⚡ I will not ask before running commands in this session, until you send /yolo or /new or the gateway restarts. Commands that are always blocked stay blocked.";
pub(crate) const QUESTIONS_ON: &str = "🛡 I will ask again before running commands that need your approval.";

pub(crate) const APPROVE_USAGE: &str = "Send /approve. You can add `all` or the id of a question, and `session` or `always` to allow such commands for longer.";

/// The reason of a refusal, shown after "Denied".
pub(crate) const TURN_STOPPED: &str = "the turn was stopped";

pub(crate) fn already_ended(outcome: impl Display) -> String {
    format!("This question is no longer open.\n\n{outcome}")
}

pub(crate) fn unknown(id: &str) -> String {
    format!("There is no question with the id {id}.")
}

pub(crate) fn clarification(text: &str, choices: &[String]) -> String {
    let listed: String =
        choices.iter().enumerate().map(|(at, choice)| format!("\n{}. {choice}", at + 1)).collect();
    format!("❓ {text}{listed}")
}

pub(crate) fn answered(question: &str, answer: &str) -> String {
    format!("❓ {question}\n💬 {answer}")
}

pub(crate) fn not_answered(question: &str) -> String {
    format!("❓ {question}\n🚫 Not answered.")
}

pub(crate) fn timed_out(question: &str) -> String {
    format!("❓ {question}\n⌛ No answer in time.")
}

pub(crate) fn lost(question: &str) -> String {
    format!("❓ {question}\n♻️ The question was lost in a restart of the gateway.")
}
