//! Compaction of a conversation that is too long for its model.
//!
//! Nothing here writes: a pass ends in a value that the session commits as a whole, so a crash changes nothing.

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::compaction::{
    CompactionInput, CompactionLimits, CompactionPlan, CompactionTrigger, fallback_summary, label_summary,
    summary_prompt,
};
use petasos_agent::{ModelFailureClass, ModelRequest};
use petasos_core::compaction::{Compaction, CompactionThrottle, PassResult};
use petasos_core::transcript::{Message, UsageRecord};

use super::prepare::PreparedCall;
use crate::clock;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::Handles;
use crate::sessions::errands;

const SUMMARY_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_INPUT_CHARS: usize = 400_000;

/// The result of a pass, to be committed.
#[derive(Debug)]
pub(in crate::sessions) struct CompactionOutcome {
    pub(in crate::sessions) compaction: Compaction,
    pub(in crate::sessions) usage: UsageRecord,
    /// Estimated tokens before and after.
    pub(in crate::sessions) tokens: (usize, usize),
}

struct Summary {
    /// `None`: leave the conversation unchanged.
    text: Option<String>,
    pass: PassResult,
    usage: UsageRecord,
}

pub(in crate::sessions) fn room(handles: &Handles) -> CompactionLimits {
    CompactionLimits {
        tokens: handles.agent.model_chain.window().threshold(),
        rows: handles.settings.compaction.rows,
    }
}

/// `None`: nothing can be compacted.
pub(in crate::sessions) async fn compact(
    handles: &Handles,
    it: &PreparedCall,
    force: CompactionTrigger,
    focus: Option<&str>,
) -> Option<CompactionOutcome> {
    let conversation = it.conversation();
    let room = room(handles);
    let plan = conversation.plan(room, force)?;
    let middle = conversation.rows_to_summarise(&plan);
    let summary = if middle.is_empty() {
        Summary { text: Some(String::new()), pass: PassResult::Effective, usage: UsageRecord::default() }
    } else {
        summarise(handles, it, &middle, force, focus).await
    };
    let Summary { text, pass, usage } = summary;
    let now = clock::now();
    let before = conversation.tokens();
    let Some(text) = text else {
        tracing::warn!(session = %it.request.session, "no summary; the conversation stays unchanged");
        let compaction = Compaction { throttle: it.throttle.after(pass, now), ..Compaction::default() };
        return Some(CompactionOutcome { compaction, usage, tokens: (before, before) });
    };
    let (compaction, after) = apply_plan(&conversation, &plan, text);
    let fewer_rows = compaction.replaced.is_some() && conversation.rows.len() > room.rows;
    let made_room = fewer_rows || after.saturating_mul(100) <= before.saturating_mul(95);
    let pass = if made_room || pass != PassResult::Effective { pass } else { PassResult::Ineffective };
    let compaction = Compaction { throttle: it.throttle.after(pass, now), ..compaction };
    tracing::info!(session = %it.request.session, before, after, "conversation compacted");
    Some(CompactionOutcome { compaction, usage, tokens: (before, after) })
}

/// The rows to change, and the remaining tokens.
fn apply_plan(
    conversation: &CompactionInput<'_>,
    plan: &CompactionPlan,
    text: String,
) -> (Compaction, usize) {
    let after = conversation.size_after(plan, &text);
    let emptied = conversation.rows_to_empty(plan);
    let mut replaced = conversation.replacement(plan, text);
    if planted(PlantedBug::HidesTooMuch)
        && let Some(replaced) = &mut replaced
        && let Some(last) = conversation.ids.last()
    {
        replaced.through = *last;
    }
    let compaction =
        Compaction { emptied, replaced, throttle: CompactionThrottle::default(), prompt: Some(after.prompt) };
    (compaction, after.tokens)
}

/// Asks the model for a summary, or builds a plain list without it.
async fn summarise(
    handles: &Handles,
    it: &PreparedCall,
    middle: &[&Message],
    force: CompactionTrigger,
    focus: Option<&str>,
) -> Summary {
    // Open todo items must survive the summary.
    let todo = errands::open_items(&handles.db, &it.request.session).await;
    let with_todo = |text: &str| match &todo {
        Some(todo) => label_summary(&format!("{text}\n\n{todo}")),
        None => label_summary(text),
    };
    let plain_list = |pass, usage| Summary { text: Some(with_todo(&fallback_summary(middle))), pass, usage };
    if handles.agent.model_chain.describe().is_demo() {
        return plain_list(PassResult::Effective, UsageRecord::default());
    }
    if !it.throttle.allows_request(clock::now()) {
        return plain_list(PassResult::Failed, UsageRecord::default());
    }
    let most = MAX_INPUT_CHARS.min(handles.agent.model_chain.window().context.saturating_mul(2));
    let (system, prompt) = summary_prompt(middle, focus, most);
    let request = ModelRequest {
        system,
        messages: vec![Message::user(prompt, clock::now())],
        note: None,
        closing: None,
        tools: Arc::default(),
        model: it.request.model.clone(),
        session: it.request.session.clone(),
    };
    let mut ignore_chunks = |_| {};
    let completion = handles.agent.model_chain.complete(&request, &mut ignore_chunks);
    let class = match tokio::time::timeout(SUMMARY_TIMEOUT, completion).await {
        // The size of this prompt is not the size of the conversation.
        Ok(Ok(answer)) => {
            let usage = UsageRecord { prompt: None, ..answer.usage };
            return match answer.text.trim() {
                "" => plain_list(PassResult::Failed, usage),
                text => Summary { text: Some(with_todo(text)), pass: PassResult::Effective, usage },
            };
        }
        Ok(Err(failure)) => failure.class,
        Err(_elapsed) => ModelFailureClass::Timeout,
    };
    let pass = if class == ModelFailureClass::Timeout { PassResult::TimedOut } else { PassResult::Failed };
    match (force, is_transient(class)) {
        (CompactionTrigger::Threshold, true) => Summary { text: None, pass, usage: UsageRecord::default() },
        (CompactionTrigger::Forced, _) | (CompactionTrigger::Threshold, false) => {
            plain_list(pass, UsageRecord::default())
        }
    }
}

/// True for transient errors: a later summary may succeed.
fn is_transient(class: ModelFailureClass) -> bool {
    match class {
        ModelFailureClass::Auth
        | ModelFailureClass::Billing
        | ModelFailureClass::RateLimit
        | ModelFailureClass::Overloaded
        | ModelFailureClass::ServerError
        | ModelFailureClass::Timeout
        | ModelFailureClass::Unreachable
        | ModelFailureClass::StreamCut
        | ModelFailureClass::Tls => true,
        ModelFailureClass::ContextOverflow
        | ModelFailureClass::PayloadTooLarge
        | ModelFailureClass::OutputLimit
        | ModelFailureClass::ModelNotFound
        | ModelFailureClass::Refused
        | ModelFailureClass::BadRequest
        | ModelFailureClass::Malformed
        | ModelFailureClass::Empty
        | ModelFailureClass::Truncated => false,
    }
}
