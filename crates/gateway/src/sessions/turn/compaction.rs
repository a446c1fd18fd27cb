//! Making room in a conversation that has become too long for its model.
//!
//! Nothing here writes: a pass ends in a [`Relief`] that the session commits as a whole. Whoever dies before that has
//! changed nothing.

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::compact::{Conversation, Force, Plan, Room, fallback, labelled, question};
use petasos_agent::{Class, Request};
use petasos_core::compaction::{Pace, Pass, Relief};
use petasos_core::transcript::{Bill, Message};

use super::prepare::Prepared;
use crate::clock;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::Handles;
use crate::sessions::errands;

/// A summary that takes longer than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Characters that a summary is made from, at most.
const MATERIAL: usize = 400_000;

/// What a pass found, to be committed.
#[derive(Debug)]
pub(in crate::sessions) struct Relieved {
    pub(in crate::sessions) relief: Relief,
    pub(in crate::sessions) bill: Bill,
    /// Tokens before and after, as far as we can tell.
    pub(in crate::sessions) tokens: (usize, usize),
}

/// A summary, and how getting it went.
struct Summary {
    /// `None`: the conversation stays as it is.
    text: Option<String>,
    pass: Pass,
    bill: Bill,
}

pub(in crate::sessions) fn room(handles: &Handles) -> Room {
    Room { tokens: handles.agent.brain.window().threshold(), rows: handles.settings.compression.rows }
}

/// Makes room. `None`: there is nothing that could go.
pub(in crate::sessions) async fn relieve(
    handles: &Handles,
    it: &Prepared,
    force: Force,
    focus: Option<&str>,
) -> Option<Relieved> {
    let (conversation, room) = (it.conversation(), room(handles));
    let plan = conversation.plan(room, force)?;
    let middle = conversation.middle(&plan);
    let summary = match middle.is_empty() {
        true => Summary { text: Some(String::new()), pass: Pass::Effective, bill: Bill::default() },
        false => sum_up(handles, it, &middle, force, focus).await,
    };
    let Summary { text, pass, bill } = summary;
    let (now, before) = (clock::now(), conversation.tokens());
    let Some(text) = text else {
        tracing::warn!(session = %it.request.session, "the conversation could not be summed up; it stays as it is");
        let relief = Relief { pace: it.pace.after(pass, now), ..Relief::default() };
        return Some(Relieved { relief, bill, tokens: (before, before) });
    };
    let (relief, after) = carried_out(&conversation, &plan, text);
    let fewer_rows = relief.replaced.is_some() && conversation.rows.len() > room.rows;
    let made_room = fewer_rows || after.saturating_mul(100) <= before.saturating_mul(95);
    let pass = if made_room || pass != Pass::Effective { pass } else { Pass::Ineffective };
    let relief = Relief { pace: it.pace.after(pass, now), ..relief };
    tracing::info!(session = %it.request.session, before, after, "room was made in a conversation");
    Some(Relieved { relief, bill, tokens: (before, after) })
}

/// What the store has to do, and the tokens that are left.
fn carried_out(conversation: &Conversation<'_>, plan: &Plan, text: String) -> (Relief, usize) {
    let after = conversation.after(plan, &text);
    let (emptied, mut replaced) = (conversation.emptied(plan), conversation.replaced(plan, text));
    if let (true, Some(replaced), Some(last)) =
        (planted(Planted::HidesTooMuch), &mut replaced, conversation.ids.last())
    {
        replaced.through = *last;
    }
    let relief = Relief { emptied, replaced, pace: Pace::default(), prompt: Some(after.prompt) };
    (relief, after.tokens)
}

/// Asks the model, or writes what can be written without one.
async fn sum_up(
    handles: &Handles,
    it: &Prepared,
    middle: &[&Message],
    force: Force,
    focus: Option<&str>,
) -> Summary {
    // What is still to be done must not get lost with what is summed up.
    let todo = errands::reminder(&handles.db, &it.request.session).await;
    let kept = |text: &str| match &todo {
        Some(todo) => labelled(&format!("{text}\n\n{todo}")),
        None => labelled(text),
    };
    let without = |pass, bill| Summary { text: Some(kept(&fallback(middle))), pass, bill };
    if handles.agent.brain.describe().is_demo() {
        return without(Pass::Effective, Bill::default());
    }
    if !it.pace.rested(clock::now()) {
        return without(Pass::Failed, Bill::default());
    }
    let most = MATERIAL.min(handles.agent.brain.window().context.saturating_mul(2));
    let (system, asked) = question(middle, focus, most);
    let request = Request {
        system,
        messages: vec![Message::user(asked, clock::now())],
        note: None,
        closing: None,
        tools: Arc::default(),
        model: it.request.model.clone(),
        session: it.request.session.clone(),
    };
    let mut nobody_watches = |_| {};
    let asked = handles.agent.brain.answer(&request, &mut nobody_watches);
    let class = match tokio::time::timeout(PATIENCE, asked).await {
        // Its prompt says nothing about the size of the conversation.
        Ok(Ok(answer)) => {
            let bill = Bill { prompt: None, ..answer.bill };
            return match answer.text.trim() {
                "" => without(Pass::Failed, bill),
                text => Summary { text: Some(kept(text)), pass: Pass::Effective, bill },
            };
        }
        Ok(Err(failure)) => failure.class,
        Err(_elapsed) => Class::Timeout,
    };
    let pass = if class == Class::Timeout { Pass::TimedOut } else { Pass::Failed };
    match (force, passes_by(class)) {
        (Force::No, true) => Summary { text: None, pass, bill: Bill::default() },
        (Force::Yes, _) | (Force::No, false) => without(pass, Bill::default()),
    }
}

/// Whether a later summary may well be had: then the conversation is better left as it is for now.
fn passes_by(class: Class) -> bool {
    match class {
        Class::Auth
        | Class::Billing
        | Class::RateLimit
        | Class::Overloaded
        | Class::ServerError
        | Class::Timeout
        | Class::Unreached
        | Class::Cut
        | Class::Tls => true,
        Class::ContextOverflow
        | Class::PayloadTooLarge
        | Class::OutputLimit
        | Class::ModelNotFound
        | Class::Refused
        | Class::BadRequest
        | Class::Malformed
        | Class::Empty
        | Class::Truncated => false,
    }
}
