//! Parses an envelope or a fetched message into an `Inbound`. Pure.

use petasos_core::command::Name;
use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::filter::{FilterInput, MessageFilter};
use super::mrkdwn;
use crate::slack::wire::{
    EnvelopeId, EventCallback, EventType, Interaction, SlackFile, SlackMessage, SlashCommand, SocketFrame,
};
use crate::slack::workspaces::{WorkspaceBot, Workspaces};
use crate::slack::{Config, Error};

/// Subtypes of messages with content; others are notices of joins, edits and deletions.
const CONTENT_SUBTYPES: [&str; 4] = ["file_share", "thread_broadcast", "me_message", "bot_message"];

pub(in crate::slack) struct ParseContext<'a> {
    pub(in crate::slack) platform: Platform,
    pub(in crate::slack) config: &'a Config,
    pub(in crate::slack) filter: &'a MessageFilter,
    pub(in crate::slack) workspaces: &'a Workspaces,
    pub(in crate::slack) is_own_thread: &'a dyn Fn(&str, &str) -> bool,
}

#[derive(Debug, PartialEq)]
pub(in crate::slack) struct ParsedEnvelope {
    pub(in crate::slack) event: Inbound,
    /// The message mentions the bot or is private.
    pub(in crate::slack) addressed: bool,
    /// Payload of the acknowledgement: a notice for the author of a command.
    pub(in crate::slack) reply: Option<Value>,
}

/// Never quotes the event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::slack) enum ParseError {
    #[error("its JSON is not as expected (column {0})")]
    Shape(usize),
    #[error("no bot token for its workspace")]
    Workspace,
}

impl From<serde_json::Error> for ParseError {
    fn from(error: serde_json::Error) -> Self {
        Self::Shape(error.column())
    }
}

/// The id to acknowledge, if it is readable.
pub(in crate::slack) fn envelope_id(frame: &str) -> Option<String> {
    serde_json::from_str::<EnvelopeId>(frame).ok().map(|it| it.envelope_id)
}

/// `Ok(None)`: well-formed, but not for the bot.
pub(in crate::slack) fn envelope(
    frame: &SocketFrame,
    context: &ParseContext<'_>,
) -> Result<Option<ParsedEnvelope>, ParseError> {
    let Some(payload) = &frame.payload else { return Err(ParseError::Shape(0)) };
    let reply = |text: String| {
        let accepted = frame.accepts_response_payload;
        accepted.then(|| json!({ "response_type": "ephemeral", "text": text }))
    };
    match frame.kind.as_str() {
        "events_api" => events_api(payload, context),
        "slash_commands" => {
            let (event, notice) = slash_command(payload, context)?;
            Ok(Some(ParsedEnvelope { event, addressed: false, reply: notice.and_then(reply) }))
        }
        "interactive" => {
            let event = button_press(payload, context)?;
            Ok(event.map(|event| ParsedEnvelope { event, addressed: false, reply: None }))
        }
        _unknown => Ok(None),
    }
}

fn events_api(payload: &RawValue, context: &ParseContext<'_>) -> Result<Option<ParsedEnvelope>, ParseError> {
    let callback: EventCallback = serde_json::from_str(payload.get())?;
    let event: EventType = serde_json::from_str(callback.event.get())?;
    if !has_content(&event) {
        return Ok(None);
    }
    let message: SlackMessage = serde_json::from_str(callback.event.get())?;
    let authorized = callback.authorizations.iter().filter_map(|it| it.team_id.as_deref());
    let named = [callback.team_id.as_deref(), callback.context_team_id.as_deref()];
    let teams = authorized.chain(named.into_iter().flatten());
    let bot = context.workspaces.resolve(teams).ok_or(ParseError::Workspace)?;
    let mentioned = event.kind == "app_mention" || mrkdwn::mentions(&message.text, &bot.bot_user);
    Ok(addressed_message(message, mentioned, bot, context))
}

/// A message of a channel's history, which does not name its channel.
pub(in crate::slack) fn history_message(
    raw: &RawValue,
    (team, channel): (&str, &str),
    context: &ParseContext<'_>,
) -> Result<Option<ParsedEnvelope>, ParseError> {
    if !has_content(&serde_json::from_str(raw.get())?) {
        return Ok(None);
    }
    let mut fields: Map<String, Value> = serde_json::from_str(raw.get())?;
    fields.insert("channel".to_owned(), channel.into());
    let message: SlackMessage = serde_json::from_value(Value::Object(fields))?;
    let bot = context.workspaces.get(team).ok_or(ParseError::Workspace)?;
    let mentioned = mrkdwn::mentions(&message.text, &bot.bot_user);
    Ok(addressed_message(message, mentioned, bot, context))
}

fn has_content(event: &EventType) -> bool {
    match event.kind.as_str() {
        "app_mention" => true,
        "message" => event.subtype.as_deref().is_none_or(|subtype| CONTENT_SUBTYPES.contains(&subtype)),
        _other => false,
    }
}

fn addressed_message(
    message: SlackMessage,
    mentioned: bool,
    bot: &WorkspaceBot,
    context: &ParseContext<'_>,
) -> Option<ParsedEnvelope> {
    let event = message_event(message, mentioned, bot, context)?;
    Some(ParsedEnvelope {
        addressed: mentioned || event.source.chat_type == ChatType::Dm,
        event,
        reply: None,
    })
}

fn message_event(
    message: SlackMessage,
    mentioned: bool,
    bot: &WorkspaceBot,
    context: &ParseContext<'_>,
) -> Option<Inbound> {
    if is_own_message(&message, bot) {
        return None;
    }
    let private = match message.channel_type.as_deref() {
        Some(kind) => kind == "im",
        None => is_private(&message.channel),
    };
    let thread = thread(&message, private, context.config);
    let input = FilterInput {
        private,
        channel: &message.channel,
        from_bot: message.bot_id.is_some(),
        mentioned,
        own_thread: is_own_thread(&message, bot, context),
    };
    if !context.filter.accepts(&input) {
        return None;
    }
    let attachments: Vec<Attachment> = message.files.iter().map(attachment).collect();
    let mut text = mrkdwn::strip_mentions(&message.text, &bot.bot_user);
    if text.is_empty() && attachments.is_empty() {
        // Only a mention.
        text = message.text.trim().to_owned();
    }
    if text.is_empty() && attachments.is_empty() {
        return None;
    }
    let text = expand_bang_command(mrkdwn::to_plain_text(&text));
    let mut source = source_in(context.platform, bot, private, &message.channel);
    source.unaddressed = !(input.private || input.mentioned || input.own_thread);
    source.user_id = message.user.clone().or_else(|| message.bot_id.clone());
    source.user_name = message.username.clone();
    source.is_bot = message.bot_id.is_some();
    source.thread_id = thread;
    source.message_id = Some(message.ts.clone());
    Some(Inbound {
        source,
        // Slack delivers a mention twice, as `message` and `app_mention`, with the same ts.
        dedup: format!("{}:{}:{}", bot.team, message.channel, message.ts),
        text,
        attachments,
        quoted: None,
        context: None,
        sent_at: ts_to_millis(&message.ts),
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    })
}

fn is_own_message(message: &SlackMessage, bot: &WorkspaceBot) -> bool {
    let as_bot = bot.bot_id.is_some() && message.bot_id == bot.bot_id;
    as_bot || message.user.as_deref() == Some(&bot.bot_user)
}

fn is_own_thread(message: &SlackMessage, bot: &WorkspaceBot, context: &ParseContext<'_>) -> bool {
    let Some(thread) = &message.thread_ts else { return false };
    let begun_by_bot = message.parent_user_id.as_deref() == Some(&bot.bot_user);
    begun_by_bot || (context.is_own_thread)(&message.channel, thread)
}

/// The thread for the answer: the thread of the message, or the one that it begins.
fn thread(message: &SlackMessage, private: bool, config: &Config) -> Option<String> {
    if let Some(thread) = message.thread_ts.as_ref().filter(|thread| **thread != message.ts) {
        return Some(thread.clone());
    }
    let begins = config.reply_in_thread && (!private || config.dm_top_level_threads_as_sessions);
    begins.then(|| message.ts.clone())
}

/// The event, and a notice for the author if the answer is private.
fn slash_command(
    payload: &RawValue,
    context: &ParseContext<'_>,
) -> Result<(Inbound, Option<String>), ParseError> {
    let command: SlashCommand = serde_json::from_str(payload.get())?;
    let bot = context.workspaces.resolve(command.team_id.as_deref()).ok_or(ParseError::Workspace)?;
    let CommandText { text, private } = command_text(&command.command, &command.text);
    let direct = is_private(&command.channel_id);
    let mut source = source_in(context.platform, bot, direct, &command.channel_id);
    source.chat_name = command.channel_name.filter(|_| !direct);
    source.user_id = Some(command.user_id);
    source.user_name = command.user_name;
    // The route of a private answer; stored with the message, so it survives a restart.
    source.message_id = command.response_url.filter(|_| private);
    let notice = source.message_id.is_some().then(|| {
        let word = text.split_whitespace().next().unwrap_or_default();
        format!("Running {word}…")
    });
    let id = command.trigger_id.unwrap_or_default();
    Ok((Inbound::new(source, format!("{}:command:{id}", bot.team), text), notice))
}

struct CommandText {
    text: String,
    /// Only the author sees the answer.
    private: bool,
}

/// `/stop` is a known command; `/petasos stop` names one; `/petasos what is up?` is an ordinary message.
fn command_text(command: &str, text: &str) -> CommandText {
    let text = mrkdwn::to_plain_text(text.trim());
    let word = command.trim_start_matches('/');
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let (name, text) = match (Name::find(word), Name::find(first.trim_start_matches('/'))) {
        (Some(name), _) => (name, format!("/{word} {text}")),
        (None, Some(name)) => (name, format!("/{} {rest}", first.trim_start_matches('/'))),
        (None, None) if text.is_empty() => (Name::Help, "/help".to_owned()),
        (None, None) => return CommandText { text, private: false },
    };
    // These start a turn, and a turn answers in the chat.
    let private = !matches!(name, Name::Queue | Name::Retry);
    CommandText { text: text.trim_end().to_owned(), private }
}

fn button_press(payload: &RawValue, context: &ParseContext<'_>) -> Result<Option<Inbound>, ParseError> {
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
    let bot = context.workspaces.resolve(teams).ok_or(ParseError::Workspace)?;
    let mut source = source_in(context.platform, bot, is_private(channel), channel);
    let thread = interaction.message.as_ref().and_then(|message| message.thread_ts.clone());
    source.thread_id = thread.or_else(|| container?.thread_ts.clone());
    source.message_id = container.and_then(|container| container.message_ts.clone());
    source.user_id = Some(interaction.user.id);
    source.user_name = interaction.user.username.or(interaction.user.name);
    let sent_at = action.action_ts.as_deref().and_then(ts_to_millis);
    let id = interaction.trigger_id.or_else(|| action.action_ts.clone()).unwrap_or_default();
    Ok(Some(Inbound {
        source,
        dedup: format!("{}:pressed:{id}", bot.team),
        text: data,
        attachments: Vec::new(),
        quoted: None,
        context: None,
        sent_at,
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    }))
}

fn source_in(platform: Platform, bot: &WorkspaceBot, private: bool, channel: &str) -> Source {
    let chat_type = if private { ChatType::Dm } else { ChatType::Group };
    let mut source = Source::new(platform, chat_type, channel);
    source.scope_id = Some(bot.team.clone());
    source
}

/// Ids of direct conversations begin with D.
pub(in crate::slack) fn is_private(channel: &str) -> bool {
    channel.starts_with('D')
}

/// Slack reserves `/`, so a known command may also begin with `!`.
fn expand_bang_command(text: String) -> String {
    let known = |rest: &str| rest.split_whitespace().next().and_then(Name::find).is_some();
    match text.strip_prefix('!') {
        Some(rest) if !rest.starts_with(char::is_whitespace) && known(rest) => format!("/{rest}"),
        Some(_) | None => text,
    }
}

fn attachment(file: &SlackFile) -> Attachment {
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
        // A file outside Slack has only its id.
        reference: address.unwrap_or(&file.id).clone(),
        name: file.name.clone(),
        mime: Some(file.mimetype.clone()).filter(|mime| !mime.is_empty()),
        size: file.size,
        ..Attachment::default()
    }
}

/// `1700000000.000100` in milliseconds.
pub(in crate::slack) fn ts_to_millis(ts: &str) -> Option<Millis> {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, "0"));
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some(Millis(seconds.parse::<u64>().ok()?.checked_mul(1000)? + micros / 1000))
}

/// The route's reply target, if it is a response URL and not a message id.
pub(in crate::slack) fn response_url(reply_to: Option<&str>) -> Option<&str> {
    reply_to.filter(|it| is_response_url(it))
}

pub fn is_response_url(message: &str) -> bool {
    message.contains("://")
}

pub(in crate::slack) fn check_tokens(config: &Config) -> Result<(), Error> {
    let app = config.app_token.expose();
    if app.is_empty() {
        return Err(Error::NoAppToken);
    }
    if config.bot_tokens.is_empty() {
        return Err(Error::NoBotToken);
    }
    let swapped = config.bot_tokens.iter().any(|token| token.expose().starts_with("xapp-"));
    if swapped || !app.starts_with("xapp-") { Err(Error::SwappedTokens) } else { Ok(()) }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
