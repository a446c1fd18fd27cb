//! One request to the chain: calls, retries, continuations and fallbacks.
//!
//! Text that was already shown is never withdrawn silently. If a stream breaks, its text is kept and the
//! model is asked to continue; only a stream that broke inside a tool call is restarted, announced by
//! `Chunk::Restart`.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::Duration;

use petasos_core::transcript::{Role, ToolCall, UsageRecord};
use petasos_runtime::clock;
use tracing::{debug, warn};

use super::calls;
use super::cooldown::{is_cooling_down, start_cooldown};
use crate::conversation::history::fit_to_budget;
use crate::conversation::normalise::{ConversationItem, add_closing, add_note, normalise};
use crate::conversation::pictures::Pictures;
use crate::model::config::ConfiguredModel;
use crate::model::failure::{CallError, ModelFailure, ModelFailureClass, explain};
use crate::model::provider::{Prompt, ResponseDraft};
use crate::model::request::{Chunk, FinishReason, ModelRequest, ModelResponse};
use crate::model::retry::{Attempts, RetryStep, next_step};
use crate::model::transport::http::Http;

/// Initial output limit if none is configured, and the cap at which doubling stops.
pub(super) const OUTPUT: u32 = 4096;
const OUTPUT_CAP: u32 = 32_768;
const CONTINUATIONS: u32 = 3;
const TRUNCATED_CALLS: u32 = 4;
const INVALID_ARGUMENTS: u32 = 3;
const EMPTY_ANSWERS: u32 = 3;
const OUTPUT_LOWERED: u32 = 2;

const CONTINUE: &str =
    "(Your answer was cut off. Go on exactly where it stops. Repeat nothing, do not apologise.)";
const NUDGE: &str =
    "(Your last answer was empty. Please answer now, using what the conversation and the tools gave you.)";

pub(super) struct ChainRun<'a> {
    links: &'a [ConfiguredModel],
    http: &'a Http,
    request: &'a ModelRequest,
    chunks: &'a mut (dyn FnMut(Chunk) + Send),
    at: usize,
    counters: ModelCounters,
    /// Text of earlier calls that stays.
    kept: String,
    continued: u32,
    usage: UsageRecord,
    primary_failure: Option<ModelFailure>,
}

#[derive(Debug, Default)]
struct ModelCounters {
    failed: u32,
    truncated_calls: u32,
    invalid: u32,
    empty: u32,
    nudged: bool,
    lowered: u32,
    sent_pictures: bool,
    /// The model rejects pictures and gets the text alone.
    text_only: bool,
    /// Output limit in place of the configured one.
    output: Option<u32>,
}

enum RunStep {
    Again,
    After(Duration),
    Done(Result<ModelResponse, ModelFailure>),
}

impl<'a> ChainRun<'a> {
    pub(super) fn new(
        links: &'a [ConfiguredModel],
        http: &'a Http,
        request: &'a ModelRequest,
        chunks: &'a mut (dyn FnMut(Chunk) + Send),
    ) -> Self {
        let now = clock::monotonic();
        let at = links.iter().position(|link| !is_cooling_down(link, request, now)).unwrap_or(0);
        Self {
            links,
            http,
            request,
            chunks,
            at,
            counters: ModelCounters::default(),
            kept: String::new(),
            continued: 0,
            usage: UsageRecord::default(),
            primary_failure: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<ModelResponse, ModelFailure> {
        loop {
            let mut draft =
                if self.kept.is_empty() { ResponseDraft::new() } else { ResponseDraft::continuing() };
            let result = self.call(&mut draft).await;
            draft.flush();
            draft.take_chunks().for_each(&mut *self.chunks);
            self.add_usage(&draft);
            let next = match result {
                Ok(()) => self.evaluate(draft),
                Err(error) => self.handle_error(draft, error),
            };
            match next {
                RunStep::Again => {}
                RunStep::After(wait) => clock::sleep(wait).await,
                RunStep::Done(result) => return result,
            }
        }
    }

    async fn call(&mut self, draft: &mut ResponseDraft) -> Result<(), CallError> {
        let link = &self.links[self.at];
        let Some(url) = &link.endpoint else {
            crate::model::demo::stream(self.request, link.demo_delay, draft, self.chunks).await;
            return Ok(());
        };
        let items = self.items(link);
        let pictures = if link.vision && !self.counters.text_only {
            Pictures::load(&items).await
        } else {
            Pictures::default()
        };
        self.counters.sent_pictures = !pictures.is_empty();
        let prompt = Prompt {
            model: self.model_name(),
            system: &self.request.system,
            items: &items,
            pictures: &pictures,
            tools: &self.request.tools,
            max_output: self.counters.output.or(link.max_output),
            context: link.context(),
            session: self.request.session.as_str(),
            routing: link.routing.as_ref(),
        };
        self.http.call(link, url, &prompt, draft, self.chunks).await
    }

    fn model_name(&self) -> &'a str {
        match &self.request.model {
            Some(model) if self.at == 0 => model,
            Some(_) | None => &self.links[self.at].model,
        }
    }

    fn items(&self, link: &ConfiguredModel) -> Vec<ConversationItem> {
        let output = self.counters.output.or(link.max_output).unwrap_or(OUTPUT) as usize;
        let fixed = self.request.fixed() + self.kept.len() / 4;
        let window = link.context();
        let budget = window.saturating_sub(output).saturating_sub(fixed).max(window / 4);
        let mut items = normalise(&fit_to_budget(&self.request.messages, budget));
        if let Some(note) = &self.request.note {
            add_note(&mut items, note);
        }
        if let Some(closing) = &self.request.closing {
            add_closing(&mut items, closing);
        }
        if !self.kept.is_empty() {
            items.push(ConversationItem::Assistant { text: self.kept.clone(), calls: Vec::new() });
            items.push(ConversationItem::user(CONTINUE));
        } else if self.counters.nudged {
            add_closing(&mut items, NUDGE);
        }
        items
    }

    /// Decides whether a finished response is usable.
    fn evaluate(&mut self, draft: ResponseDraft) -> RunStep {
        let link = &self.links[self.at];
        link.timeouts.store(0, Ordering::Relaxed);
        let finish = draft.finish.unwrap_or(FinishReason::Stop);
        if finish == FinishReason::Filtered {
            self.withdraw(&draft);
            return self.give_up_model(&CallError::new(ModelFailureClass::Refused));
        }
        if !draft.calls.is_empty() {
            return self.evaluate_calls(draft, finish);
        }
        if draft.text.trim().is_empty() && self.kept.is_empty() {
            return self.handle_empty(&draft);
        }
        if finish == FinishReason::Length && !draft.text.is_empty() && self.continued < CONTINUATIONS {
            self.kept.push_str(&draft.text);
            self.continued += 1;
            self.raise_output_limit();
            return RunStep::Again;
        }
        self.done(draft, finish, Vec::new())
    }

    fn evaluate_calls(&mut self, draft: ResponseDraft, finish: FinishReason) -> RunStep {
        let cut = finish == FinishReason::Length && calls::is_truncated(&draft.calls);
        if cut && self.counters.truncated_calls < TRUNCATED_CALLS {
            self.counters.truncated_calls += 1;
            self.withdraw(&draft);
            self.raise_output_limit();
            return RunStep::Again;
        }
        if cut && self.kept.is_empty() && draft.text.trim().is_empty() {
            return self.give_up_model(&CallError::new(ModelFailureClass::Truncated));
        }
        if cut {
            return self.done(draft, FinishReason::Length, Vec::new());
        }
        if calls::has_invalid_arguments(&draft.calls) && self.counters.invalid < INVALID_ARGUMENTS {
            self.counters.invalid += 1;
            self.withdraw(&draft);
            return RunStep::Again;
        }
        let calls = calls::resolve(&draft.calls, self.request);
        self.done(draft, FinishReason::Calls, calls)
    }

    fn handle_empty(&mut self, draft: &ResponseDraft) -> RunStep {
        if draft.finish == Some(FinishReason::Length) {
            self.raise_output_limit();
        }
        let after_tools = self.request.messages.last().is_some_and(|row| row.role == Role::Tool);
        if (after_tools || draft.reasoned) && !self.counters.nudged {
            self.counters.nudged = true;
            return RunStep::Again;
        }
        if self.counters.empty < EMPTY_ANSWERS {
            self.counters.empty += 1;
            return RunStep::Again;
        }
        self.give_up_model(&CallError::new(ModelFailureClass::Empty))
    }

    fn handle_error(&mut self, draft: ResponseDraft, error: CallError) -> RunStep {
        let link = &self.links[self.at];
        if draft.calls.is_empty() {
            self.kept.push_str(&draft.text);
        } else {
            self.withdraw(&draft);
        }
        if error.class == ModelFailureClass::OutputLimit && self.counters.lowered < OUTPUT_LOWERED {
            self.counters.lowered += 1;
            self.lower_output_limit(error.limit);
            return RunStep::Again;
        }
        if self.counters.sent_pictures && !self.counters.text_only && may_concern_pictures(error.class) {
            debug!(provider = link.provider.as_str(), "retrying without pictures");
            self.counters.text_only = true;
            return RunStep::Again;
        }
        if matches!(error.class, ModelFailureClass::ContextOverflow | ModelFailureClass::PayloadTooLarge) {
            link.record_window(error.limit);
            return self.return_oversized(&error);
        }
        let timeouts = if error.class == ModelFailureClass::Timeout {
            link.timeouts.load(Ordering::Relaxed) + 1
        } else {
            0
        };
        link.timeouts.store(timeouts, Ordering::Relaxed);
        self.counters.failed += 1;
        let attempts = Attempts {
            failed: self.counters.failed,
            retries: link.retries,
            timeouts,
            fallback: self.at + 1 < self.links.len(),
            retry_after: error.retry_after,
            base: link.retry_base,
            jitter: jitter(),
        };
        let provider = link.provider.as_str();
        match next_step(&attempts, error.class) {
            RetryStep::Retry(wait) => {
                let wait_ms = wait.as_millis();
                debug!(
                    provider,
                    class = error.class.as_str(),
                    failed = attempts.failed,
                    wait_ms,
                    "retrying model call"
                );
                RunStep::After(wait)
            }
            RetryStep::Fallback | RetryStep::GiveUp => self.give_up_model(&error),
        }
    }

    /// Another model would not help: the owner of the conversation must compact it and ask again.
    fn return_oversized(&mut self, error: &CallError) -> RunStep {
        if !self.kept.is_empty() {
            return self.done(ResponseDraft::continuing(), FinishReason::Cut, Vec::new());
        }
        let message = explain(error.class, self.links[self.at].provider, self.model_name(), &error.detail);
        RunStep::Done(Err(ModelFailure { class: error.class, message }))
    }

    /// Gives up this model: continues with the next one, or fails.
    fn give_up_model(&mut self, error: &CallError) -> RunStep {
        let link = &self.links[self.at];
        let provider = link.provider.as_str();
        warn!(provider, class = error.class.as_str(), failed = self.counters.failed, "model given up");
        let message = explain(error.class, link.provider, self.model_name(), &error.detail);
        let failure = self.primary_failure.take().unwrap_or(ModelFailure { class: error.class, message });
        if self.at + 1 < self.links.len() {
            start_cooldown(link, self.request, error.class);
            self.primary_failure = Some(failure);
            self.at += 1;
            self.counters = ModelCounters::default();
            return RunStep::Again;
        }
        if self.kept.is_empty() {
            return RunStep::Done(Err(failure));
        }
        self.done(ResponseDraft::continuing(), FinishReason::Cut, Vec::new())
    }

    fn done(&mut self, draft: ResponseDraft, finish: FinishReason, calls: Vec<ToolCall>) -> RunStep {
        let mut text = std::mem::take(&mut self.kept);
        text.push_str(&draft.text);
        RunStep::Done(Ok(ModelResponse {
            text,
            calls,
            finish,
            usage: self.usage,
            model: draft.model.unwrap_or_else(|| self.model_name().to_owned()),
            partial: matches!(finish, FinishReason::Length | FinishReason::Cut),
        }))
    }

    /// Withdraws the text of this call; the text of earlier calls stays.
    fn withdraw(&mut self, draft: &ResponseDraft) {
        if draft.text.is_empty() {
            return;
        }
        (self.chunks)(Chunk::Restart);
        if !self.kept.is_empty() {
            (self.chunks)(Chunk::Text(self.kept.clone()));
        }
    }

    fn add_usage(&mut self, draft: &ResponseDraft) {
        let usage = draft.usage;
        self.usage.tokens.add(usage);
        if usage.prompt() > 0 {
            self.usage.prompt = Some(usage.prompt());
        }
        if let Some(prices) = &self.links[self.at].prices {
            let so_far = self.usage.micro_usd.unwrap_or(0);
            self.usage.micro_usd = Some(so_far.saturating_add(prices.micro_usd(usage)));
        }
    }

    fn lower_output_limit(&mut self, granted: Option<usize>) {
        let requested = self.counters.output.or(self.links[self.at].max_output).unwrap_or(OUTPUT);
        let granted =
            granted.and_then(|granted| u32::try_from(granted).ok()).filter(|granted| *granted < requested);
        self.counters.output = Some(granted.unwrap_or(requested / 2).max(1));
    }

    fn raise_output_limit(&mut self) {
        let configured = self.links[self.at].max_output;
        let now = self.counters.output.or(configured).unwrap_or(OUTPUT);
        self.counters.output = Some(now.saturating_mul(2).min(OUTPUT_CAP.max(now)));
    }
}

/// Servers report unsupported pictures in many ways, none of them specific.
fn may_concern_pictures(class: ModelFailureClass) -> bool {
    matches!(
        class,
        ModelFailureClass::BadRequest
            | ModelFailureClass::PayloadTooLarge
            | ModelFailureClass::ModelNotFound
            | ModelFailureClass::ContextOverflow
    )
}

/// Jitter from 0 to 1000: a fresh hasher is randomly seeded.
fn jitter() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % 1001
}
