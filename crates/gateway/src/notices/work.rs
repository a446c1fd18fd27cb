//! Background work: scheduled jobs, completions, storage.

pub(crate) const ENDED_WITHOUT_NAME: &str = "background work has ended";

pub(crate) fn job_missed(name: &str, time: &str) -> String {
    format!("⏰ {name} was not run, because the gateway was not running at its time ({time}).")
}

pub(crate) fn job_failed(name: &str, reason: &str) -> String {
    format!("⚠️ {name} failed. {reason}")
}

pub(crate) fn from_earlier_conversation(headline: &str) -> String {
    format!("ℹ️ From an earlier conversation: {headline}.")
}

pub(crate) fn delegation_ended(status: &str, goal: &str, transcript: &str) -> String {
    format!("delegated work has ended ({status}): {goal}; its transcript is saved{transcript}")
}
