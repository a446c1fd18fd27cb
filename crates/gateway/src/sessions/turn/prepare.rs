//! What a model is asked: the conversation as it stands, with what it must know about interruptions.

use petasos_agent::compact::Conversation;
use std::sync::Arc;

use petasos_agent::{Later, NOTHING_LATER, Request, ToolSpec};
use petasos_core::compaction::Pace;
use petasos_core::ids::RowId;
use petasos_core::session::{Entry, Interruption};
use petasos_core::transcript::{Message, Role};
use petasos_core::turn::{Closing, Moment, Turn, resume_note};
use petasos_core::{SessionId, SessionKey, TurnId};

use crate::api::runs::Wish;
use crate::sessions::Handles;
use crate::sessions::turn::notices;
use crate::{Error, clock};

/// Rows of history that are read for a call; what does not fit the model's context is cut later.
const HISTORY_ROWS: usize = 2000;

/// One question to the model.
#[derive(Debug, Clone, Copy)]
pub(in crate::sessions) struct Asked {
    pub(in crate::sessions) attempt: u32,
    /// For the last time, and without tools.
    pub(in crate::sessions) closing: Option<Closing>,
    /// The turn was interrupted and is being continued.
    pub(in crate::sessions) resumed: bool,
    /// What the channel of this turn can do.
    pub(in crate::sessions) later: Later,
}

/// A question that can be asked, and what is known about its size.
#[derive(Debug)]
pub(in crate::sessions) struct Prepared {
    pub(in crate::sessions) request: Request,
    /// The names of its rows.
    ids: Vec<RowId>,
    /// Words of our own where the user's would stand, and their place: never stored.
    silent: Option<(usize, Message)>,
    /// Tokens of the last prompt as the provider counted them.
    reported: u64,
    pub(in crate::sessions) pace: Pace,
}

/// A conversation as the store knows it.
struct Known {
    ids: Vec<RowId>,
    messages: Vec<Message>,
    prompt: Option<String>,
    entry: Option<Entry>,
    pace: Pace,
    /// What a program wants of this turn.
    wish: Option<Wish>,
}

impl Prepared {
    /// As it is stored.
    pub(in crate::sessions) fn conversation(&self) -> Conversation<'_> {
        let (rows, ids) = (&self.request.messages, &self.ids);
        Conversation { rows, ids, fixed: self.request.fixed(), reported: self.reported }
    }

    /// Nothing but the one message that is to be answered.
    pub(in crate::sessions) fn is_first(&self) -> bool {
        self.request.messages.iter().filter(|row| row.role == Role::User).count() < 2
    }

    /// Puts our own words where they belong, for as long as the model is asked.
    pub(in crate::sessions) fn speak(&mut self) {
        if let Some((place, words)) = &self.silent {
            self.request.messages.insert(*place, words.clone());
        }
    }

    pub(in crate::sessions) fn fall_silent(&mut self) {
        if let Some((place, _)) = &self.silent {
            self.request.messages.remove(*place);
        }
    }
}

/// `offered`: the tools of this turn.
pub(in crate::sessions) async fn prepare(
    handles: &Handles,
    turn: &Turn,
    asked: Asked,
    offered: Arc<[ToolSpec]>,
) -> Result<Prepared, Error> {
    let known = known(handles, turn.key.clone(), turn.session.clone(), Some(turn.id)).await?;
    let Known { ids, messages, prompt, entry, pace, wish } = known;
    let tools = if asked.closing.is_some() { Arc::default() } else { offered };
    let hint = &handles.channels.capabilities(turn.route.platform).hint.clone();
    let mut system = prompt.unwrap_or_else(|| handles.settings.system_prompt(hint, None, turn.started_at));
    if asked.later == Later::Unsupported {
        system = format!("{system}\n\n{NOTHING_LATER}");
    }
    if let Some(instructions) = wish.as_ref().and_then(|wish| wish.instructions.as_deref()) {
        system.push_str("\n\n");
        system.push_str(instructions);
    }
    let (mut note, mut silent) = (None, None);
    if let Some(entry) = &entry {
        let before = messages.partition_point(|row| row.at < turn.started_at);
        let first = messages[before..].iter().find(|row| row.role != Role::Notice);
        let moment = match first.map(|row| row.role) {
            Some(Role::User) if asked.resumed => Moment::Continued,
            Some(Role::User) => Moment::Message,
            Some(Role::Assistant | Role::Tool | Role::Notice | Role::Summary) | None => Moment::Silence,
        };
        let (window, now) = (handles.settings.resume_window, clock::now());
        let mut what =
            Interruption::of(entry, &messages[..before], window, now, petasos_store::local_time(now));
        // A mark made while this turn runs is for the next process, not for us.
        let begun = petasos_store::local_time(turn.started_at);
        what.pending &= asked.resumed || entry.last_resume_marked_at.is_none_or(|marked| marked < begun);
        // Who asked, and not who reads the answer.
        let reader = handles.channels.reader(entry.platform.unwrap_or(turn.route.platform));
        note = reset_note(entry, &messages).or_else(|| resume_note(&what, reader, moment));
        if moment == Moment::Silence
            && let Some(note) = note.take()
        {
            silent = Some((before, Message::user(note, turn.started_at)));
        }
    }
    let reported = entry.as_ref().map_or(0, |entry| entry.last_prompt_tokens);
    let chosen = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
    let model = chosen.or_else(|| wish.and_then(|wish| wish.model));
    let closing = asked.closing.map(|why| notices::closing(why).to_owned());
    let session = turn.session.clone();
    let request = Request { system, messages, note, closing, tools, model, session };
    Ok(Prepared { request, ids, silent, reported, pace })
}

/// A conversation that nobody is to be asked about.
pub(in crate::sessions) async fn prepare_quietly(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
) -> Result<Prepared, Error> {
    let tools = handles.agent.tools_of(&key).specs();
    let Known { ids, messages, prompt, entry, pace, .. } = known(handles, key, session.clone(), None).await?;
    let system = prompt.unwrap_or_default();
    let reported = entry.as_ref().map_or(0, |entry| entry.last_prompt_tokens);
    let model = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
    let request = Request { system, messages, note: None, closing: None, tools, model, session };
    Ok(Prepared { request, ids, silent: None, reported, pace })
}

async fn known(
    handles: &Handles,
    key: SessionKey,
    session: SessionId,
    turn: Option<TurnId>,
) -> Result<Known, Error> {
    let read = handles.db.read(move |reader| {
        let said = reader.history(&session, HISTORY_ROWS)?;
        let (ids, messages) = said.into_iter().map(|said| (said.id, said.message)).unzip();
        let (prompt, pace) = (reader.system_prompt(&session)?, reader.pace(&session)?);
        let run = turn.map_or(Ok(None), |turn| reader.run_of(turn.into()))?;
        let wish = run.and_then(|run| Wish::read(&run.wish));
        Ok(Known { ids, messages, prompt, entry: reader.entry(&key)?, pace, wish })
    });
    read.await
}

/// In the first turn after a reset nobody asked for, the model learns why it remembers nothing.
fn reset_note(entry: &Entry, messages: &[Message]) -> Option<String> {
    let first = messages.iter().all(|message| message.role == Role::User);
    let reason = entry.auto_reset_reason.filter(|_| entry.was_auto_reset && first)?;
    Some(format!(
        "[System note: the conversation before this message was closed by the gateway ({}). This is a fresh start; \
         the user can bring the old one back with /resume.]",
        reason.as_str()
    ))
}
