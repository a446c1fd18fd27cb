//! One answer: calls, repetitions, continuations, the way down the chain.
//!
//! What was shown to the reader is never taken back silently. Text that arrived before a stream died is
//! kept, and the model is asked to go on; only a call that died inside a tool call (nothing has run yet)
//! is made again from its start, announced by `Chunk::Restart`.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::Duration;

use petasos_core::transcript::{Bill, Role, ToolCall};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::calls;
use super::rest::{rest, rests};
use crate::config::Link;
use crate::failure::{CallError, Class, Failure, explain};
use crate::history::fit;
use crate::http::Http;
use crate::hygiene::{Item, add_closing, add_note, tidy};
use crate::pictures::Pictures;
use crate::provider::{Draft, Prompt};
use crate::request::{Answer, Chunk, Finish, Request};
use crate::retry::{Attempts, Step, next_step};

/// The output limit to start from when none is configured, and where doubling it ends.
pub(super) const OUTPUT: u32 = 4096;
const OUTPUT_CAP: u32 = 32_768;
const CONTINUATIONS: u32 = 3;
const CUT_CALLS: u32 = 4;
const BROKEN_ARGUMENTS: u32 = 3;
const EMPTY_ANSWERS: u32 = 3;
const OUTPUT_LOWERED: u32 = 2;

const GO_ON: &str =
    "(Your answer was cut off. Go on exactly where it stops. Repeat nothing, do not apologise.)";
const NUDGE: &str =
    "(Your last answer was empty. Please answer now, using what the conversation and the tools gave you.)";

pub(super) struct Run<'a> {
    links: &'a [Link],
    http: &'a Http,
    request: &'a Request,
    chunks: &'a mut (dyn FnMut(Chunk) + Send),
    at: usize,
    tally: Tally,
    /// Text of earlier calls that stands.
    kept: String,
    continued: u32,
    bill: Bill,
    /// Why the primary model was left.
    first: Option<Failure>,
}

/// What happened with the model now asked.
#[derive(Debug, Default)]
struct Tally {
    failed: u32,
    cut_calls: u32,
    broken: u32,
    empty: u32,
    nudged: bool,
    lowered: u32,
    /// The last call showed pictures.
    showed: bool,
    /// It does not take pictures: it gets the text alone.
    blind: bool,
    /// Another output limit than the configured one.
    output: Option<u32>,
}

enum Next {
    Again,
    After(Duration),
    Done(Result<Answer, Failure>),
}

impl<'a> Run<'a> {
    pub(super) fn new(
        links: &'a [Link],
        http: &'a Http,
        request: &'a Request,
        chunks: &'a mut (dyn FnMut(Chunk) + Send),
    ) -> Self {
        let now = Instant::now();
        let at = links.iter().position(|link| !rests(link, request, now)).unwrap_or(0);
        Self {
            links,
            http,
            request,
            chunks,
            at,
            tally: Tally::default(),
            kept: String::new(),
            continued: 0,
            bill: Bill::default(),
            first: None,
        }
    }

    pub(super) async fn until_done(mut self) -> Result<Answer, Failure> {
        loop {
            let mut draft = if self.kept.is_empty() { Draft::new() } else { Draft::continuing() };
            let outcome = self.call(&mut draft).await;
            draft.flush();
            draft.fresh().for_each(&mut *self.chunks);
            self.charge(&draft);
            let next = match outcome {
                Ok(()) => self.judge(draft),
                Err(error) => self.failed(draft, error),
            };
            match next {
                Next::Again => {}
                Next::After(wait) => sleep(wait).await,
                Next::Done(result) => return result,
            }
        }
    }

    async fn call(&mut self, draft: &mut Draft) -> Result<(), CallError> {
        let link = &self.links[self.at];
        let Some(url) = &link.endpoint else {
            crate::demo::stream(self.request, link.demo_delay, draft, self.chunks).await;
            return Ok(());
        };
        let items = self.items(link);
        let pictures = match link.vision && !self.tally.blind {
            true => Pictures::of(&items).await,
            false => Pictures::default(),
        };
        self.tally.showed = !pictures.is_empty();
        let prompt = Prompt {
            model: self.model(),
            system: &self.request.system,
            items: &items,
            pictures: &pictures,
            tools: &self.request.tools,
            max_output: self.tally.output.or(link.max_output),
            context: link.context(),
            session: self.request.session.as_str(),
            routing: link.routing.as_ref(),
        };
        self.http.call(link, url, &prompt, draft, self.chunks).await
    }

    fn model(&self) -> &'a str {
        match &self.request.model {
            Some(model) if self.at == 0 => model,
            Some(_) | None => &self.links[self.at].model,
        }
    }

    /// The conversation as this call needs it.
    fn items(&self, link: &Link) -> Vec<Item> {
        let output = self.tally.output.or(link.max_output).unwrap_or(OUTPUT) as usize;
        let fixed = self.request.fixed() + self.kept.len() / 4;
        let window = link.context();
        let budget = window.saturating_sub(output).saturating_sub(fixed).max(window / 4);
        let mut items = tidy(&fit(&self.request.messages, budget));
        if let Some(note) = &self.request.note {
            add_note(&mut items, note);
        }
        if let Some(closing) = &self.request.closing {
            add_closing(&mut items, closing);
        }
        if !self.kept.is_empty() {
            items.push(Item::Assistant { text: self.kept.clone(), calls: Vec::new() });
            items.push(Item::user(GO_ON));
        } else if self.tally.nudged {
            add_closing(&mut items, NUDGE);
        }
        items
    }

    /// An answer came to its end: is it one?
    fn judge(&mut self, draft: Draft) -> Next {
        let link = &self.links[self.at];
        link.silent.store(0, Ordering::Relaxed);
        let finish = draft.finish.unwrap_or(Finish::Stop);
        if finish == Finish::Filtered {
            self.void(&draft);
            return self.leave(&CallError::new(Class::Refused));
        }
        if !draft.calls.is_empty() {
            return self.judge_calls(draft, finish);
        }
        if draft.text.trim().is_empty() && self.kept.is_empty() {
            return self.empty(&draft);
        }
        if finish == Finish::Length && !draft.text.is_empty() && self.continued < CONTINUATIONS {
            self.kept.push_str(&draft.text);
            self.continued += 1;
            self.widen();
            return Next::Again;
        }
        self.done(draft, finish, Vec::new())
    }

    fn judge_calls(&mut self, draft: Draft, finish: Finish) -> Next {
        let cut = finish == Finish::Length && calls::cut(&draft.calls);
        if cut && self.tally.cut_calls < CUT_CALLS {
            self.tally.cut_calls += 1;
            self.void(&draft);
            self.widen();
            return Next::Again;
        }
        if cut && self.kept.is_empty() && draft.text.trim().is_empty() {
            return self.leave(&CallError::new(Class::Truncated));
        }
        if cut {
            return self.done(draft, Finish::Length, Vec::new());
        }
        if calls::broken(&draft.calls) && self.tally.broken < BROKEN_ARGUMENTS {
            self.tally.broken += 1;
            self.void(&draft);
            return Next::Again;
        }
        let calls = calls::read(&draft.calls, self.request);
        self.done(draft, Finish::Calls, calls)
    }

    fn empty(&mut self, draft: &Draft) -> Next {
        if draft.finish == Some(Finish::Length) {
            self.widen();
        }
        let after_tools = self.request.messages.last().is_some_and(|row| row.role == Role::Tool);
        if (after_tools || draft.reasoned) && !self.tally.nudged {
            self.tally.nudged = true;
            return Next::Again;
        }
        if self.tally.empty < EMPTY_ANSWERS {
            self.tally.empty += 1;
            return Next::Again;
        }
        self.leave(&CallError::new(Class::Empty))
    }

    fn failed(&mut self, draft: Draft, error: CallError) -> Next {
        let link = &self.links[self.at];
        if draft.calls.is_empty() {
            self.kept.push_str(&draft.text);
        } else {
            self.void(&draft);
        }
        if error.class == Class::OutputLimit && self.tally.lowered < OUTPUT_LOWERED {
            self.tally.lowered += 1;
            self.lower(error.limit);
            return Next::Again;
        }
        if self.tally.showed && !self.tally.blind && may_be_the_pictures(error.class) {
            debug!(provider = link.provider.as_str(), "a model call is repeated without its pictures");
            self.tally.blind = true;
            return Next::Again;
        }
        if matches!(error.class, Class::ContextOverflow | Class::PayloadTooLarge) {
            link.learn(error.limit);
            return self.too_long(&error);
        }
        let silent = if error.class == Class::Timeout { link.silent.load(Ordering::Relaxed) + 1 } else { 0 };
        link.silent.store(silent, Ordering::Relaxed);
        self.tally.failed += 1;
        let attempts = Attempts {
            failed: self.tally.failed,
            retries: link.retries,
            silent,
            fallback: self.at + 1 < self.links.len(),
            retry_after: error.retry_after,
            base: link.retry_base,
            roll: roll(),
        };
        let provider = link.provider.as_str();
        match next_step(&attempts, error.class) {
            Step::Retry(wait) => {
                let wait_ms = wait.as_millis();
                debug!(
                    provider,
                    class = error.class.as_str(),
                    failed = attempts.failed,
                    wait_ms,
                    "model call repeated"
                );
                Next::After(wait)
            }
            Step::Fallback | Step::GiveUp => self.leave(&error),
        }
    }

    /// Another model would be no cure: whoever owns the conversation must make it shorter and ask again.
    fn too_long(&mut self, error: &CallError) -> Next {
        if !self.kept.is_empty() {
            return self.done(Draft::continuing(), Finish::Cut, Vec::new());
        }
        let message = explain(error.class, self.links[self.at].provider, self.model(), &error.detail);
        Next::Done(Err(Failure { class: error.class, message }))
    }

    /// This model is given up: the next one, or the end.
    fn leave(&mut self, error: &CallError) -> Next {
        let link = &self.links[self.at];
        let provider = link.provider.as_str();
        warn!(provider, class = error.class.as_str(), failed = self.tally.failed, "model given up");
        let message = explain(error.class, link.provider, self.model(), &error.detail);
        let failure = self.first.take().unwrap_or(Failure { class: error.class, message });
        if self.at + 1 < self.links.len() {
            rest(link, self.request, error.class);
            self.first = Some(failure);
            self.at += 1;
            self.tally = Tally::default();
            return Next::Again;
        }
        if self.kept.is_empty() {
            return Next::Done(Err(failure));
        }
        self.done(Draft::continuing(), Finish::Cut, Vec::new())
    }

    fn done(&mut self, draft: Draft, finish: Finish, calls: Vec<ToolCall>) -> Next {
        let mut text = std::mem::take(&mut self.kept);
        text.push_str(&draft.text);
        Next::Done(Ok(Answer {
            text,
            calls,
            finish,
            bill: self.bill,
            model: draft.model.unwrap_or_else(|| self.model().to_owned()),
            partial: matches!(finish, Finish::Length | Finish::Cut),
        }))
    }

    /// Takes back what this call has shown; what earlier calls said stands.
    fn void(&mut self, draft: &Draft) {
        if draft.text.is_empty() {
            return;
        }
        (self.chunks)(Chunk::Restart);
        if !self.kept.is_empty() {
            (self.chunks)(Chunk::Text(self.kept.clone()));
        }
    }

    fn charge(&mut self, draft: &Draft) {
        let usage = draft.usage;
        self.bill.usage.add(usage);
        if usage.prompt() > 0 {
            self.bill.prompt = Some(usage.prompt());
        }
        if let Some(prices) = &self.links[self.at].prices {
            let so_far = self.bill.micro_usd.unwrap_or(0);
            self.bill.micro_usd = Some(so_far.saturating_add(prices.micro_usd(usage)));
        }
    }

    /// The provider grants less room for the answer than we asked for.
    fn lower(&mut self, granted: Option<usize>) {
        let asked = self.tally.output.or(self.links[self.at].max_output).unwrap_or(OUTPUT);
        let granted =
            granted.and_then(|granted| u32::try_from(granted).ok()).filter(|granted| *granted < asked);
        self.tally.output = Some(granted.unwrap_or(asked / 2).max(1));
    }

    /// Twice the room for the next attempt.
    fn widen(&mut self) {
        let configured = self.links[self.at].max_output;
        let now = self.tally.output.or(configured).unwrap_or(OUTPUT);
        self.tally.output = Some(now.saturating_mul(2).min(OUTPUT_CAP.max(now)));
    }
}

/// Servers that take no pictures say so in many ways, none of them certain.
fn may_be_the_pictures(class: Class) -> bool {
    matches!(
        class,
        Class::BadRequest | Class::PayloadTooLarge | Class::ModelNotFound | Class::ContextOverflow
    )
}

/// Chance for the jitter, 0 to 1000: a fresh hasher is randomly seeded.
fn roll() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % 1001
}
