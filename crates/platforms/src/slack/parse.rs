//! One envelope into one `Inbound`. Pure.

use petasos_core::command::Name;
use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::gate::{Gate, Scene};
use super::team::{Me, Teams};
use super::text;
use super::wire::{Callback, Command, File, Frame, Identified, Interaction, Message, Typed};
use super::{Config, Error};

/// Kinds of message that say something; the others tell of joins, edits, deletions and the like.
const SPOKEN: [&str; 4] = ["file_share", "thread_broadcast", "me_message", "bot_message"];

/// What is known when an envelope is read.
pub(super) struct Knowledge<'a> {
    pub(super) platform: Platform,
    pub(super) config: &'a Config,
    pub(super) gate: &'a Gate,
    pub(super) teams: &'a Teams,
    /// Whether we take part in this thread of this channel.
    pub(super) takes_part: &'a dyn Fn(&str, &str) -> bool,
}

/// An envelope that is for us.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) event: Inbound,
    /// It is addressed to us, not only said where we listen.
    pub(super) called: bool,
    /// What the acknowledgement says to whoever typed a command.
    pub(super) reply: Option<Value>,
}

/// Why an envelope is skipped. Names no text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("its JSON is not as expected (column {0})")]
    Shape(usize),
    #[error("it belongs to a workspace for which there is no bot token")]
    Workspace,
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Shape(error.column())
    }
}

/// The id to acknowledge, even if we cannot read the rest.
pub(super) fn envelope_id(frame: &str) -> Option<String> {
    serde_json::from_str::<Identified>(frame).ok().map(|it| it.envelope_id)
}

/// `Ok(None)`: well formed, and not for us (an edit, another bot, a channel that did not call us).
pub(super) fn envelope(frame: &Frame, known: &Knowledge<'_>) -> Result<Option<Read>, Unreadable> {
    let Some(payload) = &frame.payload else { return Err(Unreadable::Shape(0)) };
    let reply = |text: String| {
        let wanted = frame.accepts_response_payload;
        wanted.then(|| json!({ "response_type": "ephemeral", "text": text }))
    };
    match frame.kind.as_str() {
        "events_api" => Ok(event(payload, known)?),
        "slash_commands" => {
            let (event, notice) = typed(payload, known)?;
            Ok(Some(Read { event, called: false, reply: notice.and_then(reply) }))
        }
        "interactive" => Ok(pressed(payload, known)?.map(|event| Read { event, called: false, reply: None })),
        _unknown => Ok(None),
    }
}

fn event(payload: &RawValue, known: &Knowledge<'_>) -> Result<Option<Read>, Unreadable> {
    let callback: Callback = serde_json::from_str(payload.get())?;
    let typed: Typed = serde_json::from_str(callback.event.get())?;
    if !is_spoken(&typed) {
        return Ok(None);
    }
    let message: Message = serde_json::from_str(callback.event.get())?;
    let authorized = callback.authorizations.iter().filter_map(|it| it.team_id.as_deref());
    let named = [callback.team_id.as_deref(), callback.context_team_id.as_deref()];
    let me = known.teams.of(authorized.chain(named.into_iter().flatten())).ok_or(Unreadable::Workspace)?;
    let called = typed.kind == "app_mention" || text::mentions(&message.text, &me.bot_user);
    Ok(read(message, called, me, known))
}

/// A message out of a channel's history, which does not say where it stands.
pub(super) fn fetched(
    raw: &RawValue,
    (team, channel): (&str, &str),
    known: &Knowledge<'_>,
) -> Result<Option<Read>, Unreadable> {
    if !is_spoken(&serde_json::from_str(raw.get())?) {
        return Ok(None);
    }
    let mut fields: Map<String, Value> = serde_json::from_str(raw.get())?;
    fields.insert("channel".to_owned(), channel.into());
    let message: Message = serde_json::from_value(Value::Object(fields))?;
    let me = known.teams.get(team).ok_or(Unreadable::Workspace)?;
    let called = text::mentions(&message.text, &me.bot_user);
    Ok(read(message, called, me, known))
}

fn is_spoken(typed: &Typed) -> bool {
    match typed.kind.as_str() {
        "app_mention" => true,
        "message" => typed.subtype.as_deref().is_none_or(|subtype| SPOKEN.contains(&subtype)),
        _other => false,
    }
}

fn read(message: Message, called: bool, me: &Me, known: &Knowledge<'_>) -> Option<Read> {
    let event = said(message, called, me, known)?;
    Some(Read { called: called || event.source.chat_type == ChatType::Dm, event, reply: None })
}

fn said(message: Message, called: bool, me: &Me, known: &Knowledge<'_>) -> Option<Inbound> {
    if is_ours(&message, me) {
        return None;
    }
    let private = match message.channel_type.as_deref() {
        Some(kind) => kind == "im",
        None => is_private(&message.channel),
    };
    let thread = thread(&message, private, known.config);
    let scene = Scene {
        private,
        channel: &message.channel,
        from_bot: message.bot_id.is_some(),
        mentioned: called,
        our_thread: is_our_thread(&message, me, known),
    };
    if !known.gate.admits(&scene) {
        return None;
    }
    let overheard = !(scene.private || scene.mentioned || scene.our_thread);
    let attachments: Vec<Attachment> = message.files.iter().map(attached).collect();
    let mut text = text::without_mentions(&message.text, &me.bot_user);
    if text.is_empty() && attachments.is_empty() {
        // Whoever only calls us wants something, too.
        text = message.text.trim().to_owned();
    }
    if text.is_empty() && attachments.is_empty() {
        return None;
    }
    let text = commanded(text::readable(&text));
    let mut source = place(known.platform, me, private, &message.channel);
    source.overheard = overheard;
    source.user_id = message.user.clone().or_else(|| message.bot_id.clone());
    source.user_name = message.username.clone();
    source.is_bot = message.bot_id.is_some();
    source.thread_id = thread;
    source.message_id = Some(message.ts.clone());
    Some(Inbound {
        source,
        // A message and the mention in it are the same moment of the same channel.
        dedup: format!("{}:{}:{}", me.team, message.channel, message.ts),
        text,
        attachments,
        quoted: None,
        context: None,
        sent_at: moment(&message.ts),
        internal: false,
        answer_to: None,
        fingerprints: vec![],
    })
}

fn is_ours(message: &Message, me: &Me) -> bool {
    let as_bot = me.bot_id.is_some() && message.bot_id == me.bot_id;
    as_bot || message.user.as_deref() == Some(&me.bot_user)
}

fn is_our_thread(message: &Message, me: &Me, known: &Knowledge<'_>) -> bool {
    let Some(thread) = &message.thread_ts else { return false };
    let began = message.parent_user_id.as_deref() == Some(&me.bot_user);
    began || (known.takes_part)(&message.channel, thread)
}

/// The thread to answer in: the one it was said in, or the one that it begins.
fn thread(message: &Message, private: bool, config: &Config) -> Option<String> {
    if let Some(thread) = message.thread_ts.as_ref().filter(|thread| **thread != message.ts) {
        return Some(thread.clone());
    }
    let begins = config.reply_in_thread && (!private || config.dm_top_level_threads_as_sessions);
    begins.then(|| message.ts.clone())
}

/// A slash command, and what to say at once if only its author is to see the answer.
fn typed(payload: &RawValue, known: &Knowledge<'_>) -> Result<(Inbound, Option<String>), Unreadable> {
    let command: Command = serde_json::from_str(payload.get())?;
    let me = known.teams.of(command.team_id.as_deref()).ok_or(Unreadable::Workspace)?;
    let Asked { text, private } = asked(&command.command, &command.text);
    let direct = is_private(&command.channel_id);
    let mut source = place(known.platform, me, direct, &command.channel_id);
    source.chat_name = command.channel_name.filter(|_| !direct);
    source.user_id = Some(command.user_id);
    source.user_name = command.user_name;
    // The way back for what only its author sees; kept with the message, so that it outlives us.
    source.message_id = command.response_url.filter(|_| private);
    let notice = source.message_id.is_some().then(|| {
        let word = text.split_whitespace().next().unwrap_or_default();
        format!("Running {word}…")
    });
    let id = command.trigger_id.unwrap_or_default();
    Ok((Inbound::new(source, format!("{}:command:{id}", me.team), text), notice))
}

struct Asked {
    text: String,
    /// The answer is for the author's eyes only.
    private: bool,
}

/// `/stop` is a command of ours; `/petasos stop` names one; `/petasos what is up?` asks the agent in public.
fn asked(command: &str, text: &str) -> Asked {
    let text = text::readable(text.trim());
    let word = command.trim_start_matches('/');
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let (name, text) = match (Name::find(word), Name::find(first.trim_start_matches('/'))) {
        (Some(name), _) => (name, format!("/{word} {text}")),
        (None, Some(name)) => (name, format!("/{} {rest}", first.trim_start_matches('/'))),
        (None, None) if text.is_empty() => (Name::Help, "/help".to_owned()),
        (None, None) => return Asked { text, private: false },
    };
    // Those start a turn, and a turn answers in the chat.
    let private = !matches!(name, Name::Queue | Name::Retry);
    Asked { text: text.trim_end().to_owned(), private }
}

fn pressed(payload: &RawValue, known: &Knowledge<'_>) -> Result<Option<Inbound>, Unreadable> {
    let interaction: Interaction = serde_json::from_str(payload.get())?;
    if interaction.kind != "block_actions" {
        return Ok(None);
    }
    let container = interaction.container.as_ref();
    let channel = interaction.channel.as_ref().map(|channel| channel.id.as_str());
    let channel = channel.or_else(|| container?.channel_id.as_deref());
    let action = interaction.actions.iter().find_map(|action| Some((action, action.value.clone()?)));
    let (Some(channel), Some((action, data))) = (channel, action) else { return Ok(None) };
    let team = interaction.team.as_ref().map(|team| team.id.as_str());
    let teams = team.into_iter().chain(interaction.user.team_id.as_deref());
    let me = known.teams.of(teams).ok_or(Unreadable::Workspace)?;
    let mut source = place(known.platform, me, is_private(channel), channel);
    let below = interaction.message.as_ref().and_then(|message| message.thread_ts.clone());
    source.thread_id = below.or_else(|| container?.thread_ts.clone());
    source.message_id = container.and_then(|container| container.message_ts.clone());
    source.user_id = Some(interaction.user.id);
    source.user_name = interaction.user.username.or(interaction.user.name);
    let sent_at = action.action_ts.as_deref().and_then(moment);
    let id = interaction.trigger_id.or_else(|| action.action_ts.clone()).unwrap_or_default();
    Ok(Some(Inbound {
        source,
        dedup: format!("{}:pressed:{id}", me.team),
        text: data,
        attachments: Vec::new(),
        quoted: None,
        context: None,
        sent_at,
        internal: false,
        answer_to: None,
        fingerprints: vec![],
    }))
}

fn place(platform: Platform, me: &Me, private: bool, channel: &str) -> Source {
    let chat_type = if private { ChatType::Dm } else { ChatType::Group };
    let mut source = Source::new(platform, chat_type, channel);
    source.scope_id = Some(me.team.clone());
    source
}

/// A conversation of two begins with D.
pub(super) fn is_private(channel: &str) -> bool {
    channel.starts_with('D')
}

/// Slack keeps `/` for itself, so a known command may also begin with `!`.
fn commanded(text: String) -> String {
    let known = |rest: &str| rest.split_whitespace().next().and_then(Name::find).is_some();
    match text.strip_prefix('!') {
        Some(rest) if !rest.starts_with(char::is_whitespace) && known(rest) => format!("/{rest}"),
        Some(_) | None => text,
    }
}

fn attached(file: &File) -> Attachment {
    let kind = match file.mimetype.split('/').next() {
        Some("image") => "photo",
        Some("audio") if file.subtype.as_deref() == Some("slack_audio") => "voice",
        Some("audio") => "audio",
        Some("video") => "video",
        Some(_) | None => "document",
    };
    let external = file.is_external || file.mode.as_deref() == Some("external");
    let address = file.url_private.as_ref().filter(|_| !external);
    Attachment {
        kind: kind.to_owned(),
        // One that Slack does not keep has only its id.
        reference: address.unwrap_or(&file.id).clone(),
        name: file.name.clone(),
        mime: Some(file.mimetype.clone()).filter(|mime| !mime.is_empty()),
        size: file.size,
        ..Attachment::default()
    }
}

/// `1700000000.000100` in milliseconds.
pub(super) fn moment(ts: &str) -> Option<Millis> {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, "0"));
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some(Millis(seconds.parse::<u64>().ok()?.checked_mul(1000)? + micros / 1000))
}

/// A way back that is an address rather than a message.
pub(super) fn response_url(reply_to: Option<&str>) -> Option<&str> {
    reply_to.filter(|it| is_response_url(it))
}

pub fn is_response_url(message: &str) -> bool {
    message.contains("://")
}

/// Slack must not be asked with settings that cannot work.
pub(super) fn check_tokens(config: &Config) -> Result<(), Error> {
    let app = config.app_token.expose();
    if app.is_empty() {
        return Err(Error::NoAppToken);
    }
    if config.bot_tokens.is_empty() {
        return Err(Error::NoBotToken);
    }
    let mixed = config.bot_tokens.iter().any(|token| token.expose().starts_with("xapp-"));
    if mixed || !app.starts_with("xapp-") { Err(Error::MixedUp) } else { Ok(()) }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
