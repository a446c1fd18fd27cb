//! Parses one event into an `Inbound`. Pure.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::Value;

use super::channel_cache::ChannelInfo;
use super::filter::{FilterDecision, FilterInput, Mention, MessageFilter, OtherMentions, ThreadKind};
use crate::discord::wire::{CommandOption, DiscordFile, DiscordMessage, Interaction, User, made_at};
use crate::inbound::truncated;

/// Prefix of the dedup key of a command or button; the interaction id follows.
const INTERACTION: &str = "ix:";
pub(in crate::discord) const COMMAND: u8 = 2;
const BUTTON: u8 = 3;
/// An ordinary message; other kinds except replies are notices (a pin, a join).
const DEFAULT: u8 = 0;
const REPLY: u8 = 19;
const MAX_THREAD_NAME: usize = 80;

/// The channel of an event, and what the bot knows about it.
#[derive(Debug)]
pub(in crate::discord) struct ChannelContext<'a> {
    pub(in crate::discord) platform: Platform,
    /// The bot's user id.
    pub(in crate::discord) me: u64,
    pub(in crate::discord) info: &'a ChannelInfo,
    /// Ids and names of the channel.
    pub(in crate::discord) names: &'a [String],
    /// The bot has written in this thread.
    pub(in crate::discord) joined: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::discord) struct ParsedMessage {
    pub(in crate::discord) inbound: Inbound,
    /// Name of the thread to create for the answer, if any.
    pub(in crate::discord) thread: Option<String>,
}

/// `None`: well-formed, but not for the bot.
pub(in crate::discord) fn message_event(
    message: &DiscordMessage,
    context: &ChannelContext<'_>,
    filter: &MessageFilter,
) -> Option<ParsedMessage> {
    if message.author.id.get() == context.me || !matches!(message.kind, DEFAULT | REPLY) {
        return None;
    }
    let attachments: Vec<Attachment> = message.attachments.iter().map(attachment).collect();
    if message.content.trim().is_empty() && attachments.is_empty() {
        return None;
    }
    let guild = guild(message.guild_id.map(|id| id.get()), context.info);
    let input = FilterInput {
        direct: guild.is_none(),
        channel: context.names,
        thread: if !context.info.is_thread {
            ThreadKind::None
        } else if context.joined {
            ThreadKind::Ours
        } else {
            ThreadKind::Foreign
        },
        from_bot: message.author.bot,
        mention: mention(message, context.me),
        others: others(message, context.me),
        reply: message.kind == REPLY,
    };
    let decision = filter.decide(&input);
    if decision == FilterDecision::Drop {
        return None;
    }
    let text = strip_mentions(&message.content, context.me);
    let mut source = source_in(message.channel_id.get(), guild, context);
    source.message_id = Some(message.id.to_string());
    set_author(&mut source, &message.author);
    source.role_authorized = filter.has_allowed_role(message.member.as_ref());
    source.unaddressed = !input.is_addressed();
    let thread = (decision == FilterDecision::AcceptInThread).then(|| thread_name(&text, &message.author));
    let inbound = Inbound {
        source,
        dedup: message.id.to_string(),
        text: truncated(text),
        attachments,
        quoted: message.referenced_message.as_ref().and_then(|it| quoted(&it.content)),
        context: None,
        sent_at: Some(Millis(made_at(message.id.get()))),
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    };
    Some(ParsedMessage { inbound, thread })
}

/// A slash command or a pressed button; `None` for anything else.
pub(in crate::discord) fn interaction_event(
    interaction: &Interaction,
    context: &ChannelContext<'_>,
    filter: &MessageFilter,
) -> Option<Inbound> {
    let guild = guild(interaction.guild_id.map(|id| id.get()), context.info);
    if guild.is_some() && !filter.allows_channel(context.names) {
        return None;
    }
    let data = interaction.data.as_ref()?;
    let text = match interaction.kind {
        COMMAND => command(data.name.as_deref()?, &data.options),
        BUTTON => data.custom_id.clone()?,
        _other => return None,
    };
    let member = interaction.member.as_ref().and_then(|member| member.user.as_ref());
    let mut source = source_in(interaction.channel_id?.get(), guild, context);
    source.message_id = interaction.message.as_ref().map(|message| message.id.to_string());
    set_author(&mut source, member.or(interaction.user.as_ref())?);
    source.role_authorized = filter.has_allowed_role(interaction.member.as_ref());
    Some(Inbound {
        source,
        dedup: format!("{INTERACTION}{}", interaction.id),
        text: truncated(text),
        attachments: Vec::new(),
        quoted: None,
        context: None,
        sent_at: interaction.id.parse().ok().map(|id| Millis(made_at(id))),
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    })
}

/// The interaction id behind a dedup key, if the event is an interaction.
pub(in crate::discord) fn interaction_id(dedup: &str) -> Option<&str> {
    dedup.strip_prefix(INTERACTION)
}

/// Moves the message into the thread created for it. The message itself stays outside, so there is nothing to
/// reply to.
pub(in crate::discord) fn into_thread(mut inbound: Inbound, thread: u64, name: &str) -> Inbound {
    let source = &mut inbound.source;
    source.parent_chat_id = source.chat_id.take();
    source.chat_id = Some(thread.to_string());
    source.thread_id = Some(thread.to_string());
    source.chat_name = Some(name.to_owned());
    source.chat_type = ChatType::Thread;
    source.message_id = None;
    inbound
}

fn guild(named: Option<u64>, info: &ChannelInfo) -> Option<u64> {
    named.or(info.guild)
}

fn source_in(channel: u64, guild: Option<u64>, context: &ChannelContext<'_>) -> Source {
    let chat_type = match guild {
        None => ChatType::Dm,
        Some(_) if context.info.is_thread => ChatType::Thread,
        Some(_) => ChatType::Group,
    };
    let mut source = Source::new(context.platform, chat_type, channel.to_string());
    source.chat_name = context.info.name.clone();
    source.scope_id = guild.map(|id| id.to_string());
    source.guild_id = source.scope_id.clone();
    if chat_type == ChatType::Thread {
        source.thread_id = source.chat_id.clone();
        source.parent_chat_id = context.info.parent.map(|id| id.to_string());
    }
    source
}

fn set_author(source: &mut Source, user: &User) {
    let name = user.global_name.as_ref().filter(|name| !name.is_empty()).unwrap_or(&user.username);
    source.user_id = Some(user.id.to_string());
    source.user_name = Some(name.clone());
    source.is_bot = user.bot;
    if source.chat_type == ChatType::Dm && source.chat_name.is_none() {
        source.chat_name = Some(name.clone());
    }
}

fn mention(message: &DiscordMessage, me: u64) -> Mention {
    if mention_forms(me).iter().any(|address| message.content.contains(address.as_str())) {
        return Mention::Inline;
    }
    let listed = message.mentions.iter().any(|user| user.id.get() == me);
    if listed { Mention::Listed } else { Mention::None }
}

fn others(message: &DiscordMessage, me: u64) -> OtherMentions {
    let mut others = message.mentions.iter().filter(|user| user.id.get() != me).peekable();
    if others.peek().is_none() {
        return OtherMentions::None;
    }
    if others.any(|user| user.bot) { OtherMentions::Bots } else { OtherMentions::People }
}

/// The text without mentions of the bot.
fn strip_mentions(text: &str, me: u64) -> String {
    let mut bare = text.to_owned();
    for address in mention_forms(me) {
        bare = bare.replace(&address, "");
    }
    let bare = bare.trim();
    if bare.is_empty() { text.trim().to_owned() } else { bare.to_owned() }
}

fn mention_forms(me: u64) -> [String; 2] {
    [format!("<@{me}>"), format!("<@!{me}>")]
}

fn command(name: &str, options: &[CommandOption]) -> String {
    let mut words = vec![format!("/{name}")];
    collect_words(options, &mut words);
    words.join(" ")
}

fn collect_words(options: &[CommandOption], words: &mut Vec<String>) {
    for option in options {
        match &option.value {
            Some(Value::String(text)) => words.push(text.clone()),
            Some(other) => words.push(other.to_string()),
            None => words.push(option.name.clone()),
        }
        collect_words(&option.options, words);
    }
}

fn attachment(file: &DiscordFile) -> Attachment {
    let kind = match file.content_type.as_deref().unwrap_or_default().split('/').next() {
        Some("image") => "photo",
        Some("audio") => "audio",
        Some("video") => "video",
        Some(_) | None => "document",
    };
    let name = Some(&file.filename).filter(|name| !name.is_empty()).cloned();
    Attachment {
        kind: kind.to_owned(),
        reference: file.url.clone(),
        name,
        mime: file.content_type.clone(),
        size: file.size,
        ..Attachment::default()
    }
}

fn quoted(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| truncated(text.to_owned()))
}

fn thread_name(text: &str, author: &User) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let name: String = line.chars().take(MAX_THREAD_NAME).collect();
    if name.is_empty() { author.username.clone() } else { name }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
