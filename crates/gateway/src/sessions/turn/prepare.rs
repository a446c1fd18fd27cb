//! Builds the model request of a turn: history, system prompt, and notes about interruptions.

use petasos_agent::compaction::CompactionInput;
use std::sync::Arc;

use petasos_agent::{AsyncDelivery, ModelRequest, NO_ASYNC_DELIVERY, ToolSpec};
use petasos_core::compaction::CompactionThrottle;
use petasos_core::ids::RowId;
use petasos_core::session::{Entry, Interruption};
use petasos_core::transcript::{Message, Role};
use petasos_core::turn::{Cutoff, Turn, TurnStart, resume_note};
use petasos_core::{SessionId, SessionKey, TurnId};

use crate::api::runs::RunOptions;
use crate::sessions::Handles;
use crate::{Error, clock, notices};

/// Rows of history that are read; compaction handles what exceeds the context.
const HISTORY_ROWS: usize = 2000;

#[derive(Debug, Clone, Copy)]
pub(in crate::sessions) struct ModelCall {
    pub(in crate::sessions) attempt: u32,
    /// The last call of the turn, without tools.
    pub(in crate::sessions) closing: Option<Cutoff>,
    pub(in crate::sessions) resumed: bool,
    /// Whether the channel can deliver something after the answer.
    pub(in crate::sessions) later: AsyncDelivery,
}

/// A request and what is known about its size.
#[derive(Debug)]
pub(in crate::sessions) struct PreparedCall {
    pub(in crate::sessions) request: ModelRequest,
    /// Row ids of `request.messages`.
    ids: Vec<RowId>,
    /// A note in the place of a user message, with its index: never stored.
    note_row: Option<(usize, Message)>,
    /// Prompt tokens of the last call, as reported by the provider.
    reported: u64,
    pub(in crate::sessions) throttle: CompactionThrottle,
}

struct StoredConversation {
    ids: Vec<RowId>,
    messages: Vec<Message>,
    prompt: Option<String>,
    entry: Option<Entry>,
    throttle: CompactionThrottle,
    options: Option<RunOptions>,
}

impl PreparedCall {
    /// The stored rows, without notes.
    pub(in crate::sessions) fn conversation(&self) -> CompactionInput<'_> {
        let rows = &self.request.messages;
        let ids = &self.ids;
        CompactionInput { rows, ids, fixed: self.request.fixed(), reported: self.reported }
    }

    /// The conversation has only the message to be answered.
    pub(in crate::sessions) fn is_first(&self) -> bool {
        self.request.messages.iter().filter(|row| row.role == Role::User).count() < 2
    }

    pub(in crate::sessions) fn insert_note(&mut self) {
        if let Some((place, words)) = &self.note_row {
            self.request.messages.insert(*place, words.clone());
        }
    }

    pub(in crate::sessions) fn remove_note(&mut self) {
        if let Some((place, _)) = &self.note_row {
            self.request.messages.remove(*place);
        }
    }
}

/// `offered`: the tools of this turn.
pub(in crate::sessions) async fn prepare(
    handles: &Handles,
    turn: &Turn,
    call: ModelCall,
    offered: Arc<[ToolSpec]>,
) -> Result<PreparedCall, Error> {
    let load_conversation =
        load_conversation(handles, turn.key.clone(), turn.session.clone(), Some(turn.id)).await?;
    let StoredConversation { ids, messages, prompt, entry, throttle, options } = load_conversation;
    let tools = if call.closing.is_some() { Arc::default() } else { offered };
    let hint = &handles.channels.capabilities(turn.route.platform).hint.clone();
    let mut system = prompt.unwrap_or_else(|| handles.settings.system_prompt(hint, None, turn.started_at));
    if call.later == AsyncDelivery::Unsupported {
        system = format!("{system}\n\n{NO_ASYNC_DELIVERY}");
    }
    if let Some(instructions) = options.as_ref().and_then(|options| options.instructions.as_deref()) {
        system.push_str("\n\n");
        system.push_str(instructions);
    }
    let mut note = None;
    let mut note_row = None;
    if let Some(entry) = &entry {
        let before = messages.partition_point(|row| row.at < turn.started_at);
        let first = messages[before..].iter().find(|row| row.role != Role::Notice);
        let moment = match first.map(|row| row.role) {
            Some(Role::User) if call.resumed => TurnStart::Continued,
            Some(Role::User) => TurnStart::NewMessage,
            Some(Role::Assistant | Role::Tool | Role::Notice | Role::Summary) | None => TurnStart::Unprompted,
        };
        let window = handles.settings.resume_window;
        let now = clock::now();
        let mut what =
            Interruption::of(entry, &messages[..before], window, now, petasos_store::local_time(now));
        // A mark made during this turn is meant for the next process.
        let begun = petasos_store::local_time(turn.started_at);
        what.pending &= call.resumed || entry.last_resume_marked_at.is_none_or(|marked| marked < begun);
        // The platform of the question, not of the reply route.
        let reader = handles.channels.reader(entry.platform.unwrap_or(turn.route.platform));
        note = reset_note(entry, &messages).or_else(|| resume_note(&what, reader, moment));
        if moment == TurnStart::Unprompted
            && let Some(note) = note.take()
        {
            note_row = Some((before, Message::user(note, turn.started_at)));
        }
    }
    let reported = entry.as_ref().map_or(0, |entry| entry.last_prompt_tokens);
    let chosen = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
    let model = chosen.or_else(|| options.and_then(|options| options.model));
    let closing = call.closing.map(|why| notices::model::closing(why).to_owned());
    let session = turn.session.clone();
    let request = ModelRequest { system, messages, note, closing, tools, model, session };
    Ok(PreparedCall { request, ids, note_row, reported, throttle })
}

/// The conversation without a turn, for `/compress`.
pub(in crate::sessions) async fn prepare_without_turn(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
) -> Result<PreparedCall, Error> {
    let tools = handles.agent.tools_of(&key).specs();
    let StoredConversation { ids, messages, prompt, entry, throttle, .. } =
        load_conversation(handles, key, session.clone(), None).await?;
    let system = prompt.unwrap_or_default();
    let reported = entry.as_ref().map_or(0, |entry| entry.last_prompt_tokens);
    let model = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
    let request = ModelRequest { system, messages, note: None, closing: None, tools, model, session };
    Ok(PreparedCall { request, ids, note_row: None, reported, throttle })
}

async fn load_conversation(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
    turn: Option<TurnId>,
) -> Result<StoredConversation, Error> {
    let read = handles.db.read(move |reader| {
        let rows = reader.history(&session, HISTORY_ROWS)?;
        let (ids, messages) = rows.into_iter().map(|rows| (rows.id, rows.message)).unzip();
        let prompt = reader.system_prompt(&session)?;
        let throttle = reader.pace(&session)?;
        let run = turn.map_or(Ok(None), |turn| reader.run_of(turn.into()))?;
        let options = run.and_then(|run| RunOptions::parse(&run.options));
        Ok(StoredConversation { ids, messages, prompt, entry: reader.entry(&key)?, throttle, options })
    });
    read.await
}

/// Explains an automatic reset to the model in the first turn after it.
fn reset_note(entry: &Entry, messages: &[Message]) -> Option<String> {
    let first = messages.iter().all(|message| message.role == Role::User);
    let reason = entry.auto_reset_reason.filter(|_| entry.was_auto_reset && first)?;
    Some(notices::model::reset(reason.as_str()))
}
