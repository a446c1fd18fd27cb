//! One event into one `Inbound`. Pure.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::Value;

use super::gate::{Gate, Mention, Others, Scene, Thread, Verdict};
use super::rooms::Room;
use super::wire::{File, Interaction, Message, Opt, User, made_at};

/// Longest text that is taken; Discord's own limit is far below.
const TEXT_LIMIT: usize = 1024 * 1024;
/// How the identity of a command or a pressed button begins; Discord's id of it follows.
const INTERACTION: &str = "ix:";
pub(super) const COMMAND: u8 = 2;
const BUTTON: u8 = 3;
/// An ordinary message and a reply; all others tell what Discord did (a pin, a join).
const ORDINARY: u8 = 0;
const REPLY: u8 = 19;
/// Longest name of a thread we open.
const THREAD_NAME: usize = 80;

/// Where something was said, as far as we know.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    pub(super) platform: Platform,
    /// Our own user id.
    pub(super) me: u64,
    pub(super) room: &'a Room,
    /// Every name of the channel.
    pub(super) keys: &'a [String],
    /// It is a thread in which we have spoken.
    pub(super) joined: bool,
}

/// A message for us.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) inbound: Inbound,
    /// The name of the thread in which it is to be answered, if it needs one.
    pub(super) thread: Option<String>,
}

/// `None`: well formed, and not for us (a join notice, another bot, a talk among others).
pub(super) fn said(message: &Message, spot: &Spot<'_>, gate: &Gate) -> Option<Said> {
    if message.author.id.get() == spot.me || !matches!(message.kind, ORDINARY | REPLY) {
        return None;
    }
    let attachments: Vec<Attachment> = message.attachments.iter().map(attached).collect();
    if message.content.trim().is_empty() && attachments.is_empty() {
        return None;
    }
    let guild = guild(message.guild_id.map(|id| id.get()), spot.room);
    let scene = Scene {
        direct: guild.is_none(),
        channel: spot.keys,
        thread: match (spot.room.is_thread, spot.joined) {
            (false, _) => Thread::None,
            (true, false) => Thread::Foreign,
            (true, true) => Thread::Ours,
        },
        from_bot: message.author.bot,
        mention: mention(message, spot.me),
        others: others(message, spot.me),
        reply: message.kind == REPLY,
    };
    let verdict = gate.judge(&scene);
    if verdict == Verdict::Drop {
        return None;
    }
    let text = without_address(&message.content, spot.me);
    let mut source = place(message.channel_id.get(), guild, spot);
    source.message_id = Some(message.id.to_string());
    speaker(&mut source, &message.author);
    source.role_authorized = gate.admits_role(message.member.as_ref());
    source.overheard = !scene.is_addressed();
    let thread = (verdict == Verdict::TakeInThread).then(|| thread_name(&text, &message.author));
    let inbound = Inbound {
        source,
        dedup: message.id.to_string(),
        text: bounded(text),
        attachments,
        quoted: message.referenced_message.as_ref().and_then(|it| quoted(&it.content)),
        context: None,
        sent_at: Some(Millis(made_at(message.id.get()))),
        internal: false,
        answer_to: None,
        fingerprints: vec![],
    };
    Some(Said { inbound, thread })
}

/// A slash command or a pressed button. `None`: neither, or from nowhere.
pub(super) fn asked(interaction: &Interaction, spot: &Spot<'_>, gate: &Gate) -> Option<Inbound> {
    let guild = guild(interaction.guild_id.map(|id| id.get()), spot.room);
    if guild.is_some() && !gate.opens(spot.keys) {
        return None;
    }
    let data = interaction.data.as_ref()?;
    let text = match interaction.kind {
        COMMAND => command(data.name.as_deref()?, &data.options),
        BUTTON => data.custom_id.clone()?,
        _other => return None,
    };
    let member = interaction.member.as_ref().and_then(|member| member.user.as_ref());
    let mut source = place(interaction.channel_id?.get(), guild, spot);
    source.message_id = interaction.message.as_ref().map(|message| message.id.to_string());
    speaker(&mut source, member.or(interaction.user.as_ref())?);
    source.role_authorized = gate.admits_role(interaction.member.as_ref());
    Some(Inbound {
        source,
        dedup: format!("{INTERACTION}{}", interaction.id),
        text: bounded(text),
        attachments: Vec::new(),
        quoted: None,
        context: None,
        sent_at: interaction.id.parse().ok().map(|id| Millis(made_at(id))),
        internal: false,
        answer_to: None,
        fingerprints: vec![],
    })
}

/// Discord's id of the interaction behind an event, if it is one.
pub(super) fn interaction_id(dedup: &str) -> Option<&str> {
    dedup.strip_prefix(INTERACTION)
}

/// The same message, in the thread that was opened for it. The message itself is not in there, so there is
/// nothing to anchor an answer at.
pub(super) fn moved(mut inbound: Inbound, thread: u64, name: &str) -> Inbound {
    let source = &mut inbound.source;
    source.parent_chat_id = source.chat_id.take();
    source.chat_id = Some(thread.to_string());
    source.thread_id = Some(thread.to_string());
    source.chat_name = Some(name.to_owned());
    source.chat_type = ChatType::Thread;
    source.message_id = None;
    inbound
}

fn guild(named: Option<u64>, room: &Room) -> Option<u64> {
    named.or(room.guild)
}

fn place(channel: u64, guild: Option<u64>, spot: &Spot<'_>) -> Source {
    let chat_type = match guild {
        None => ChatType::Dm,
        Some(_) if spot.room.is_thread => ChatType::Thread,
        Some(_) => ChatType::Group,
    };
    let mut source = Source::new(spot.platform, chat_type, channel.to_string());
    source.chat_name = spot.room.name.clone();
    source.scope_id = guild.map(|id| id.to_string());
    source.guild_id = source.scope_id.clone();
    if chat_type == ChatType::Thread {
        source.thread_id = source.chat_id.clone();
        source.parent_chat_id = spot.room.parent.map(|id| id.to_string());
    }
    source
}

fn speaker(source: &mut Source, user: &User) {
    let name = user.global_name.as_ref().filter(|name| !name.is_empty()).unwrap_or(&user.username);
    source.user_id = Some(user.id.to_string());
    source.user_name = Some(name.clone());
    source.is_bot = user.bot;
    if source.chat_type == ChatType::Dm && source.chat_name.is_none() {
        source.chat_name = Some(name.clone());
    }
}

fn mention(message: &Message, me: u64) -> Mention {
    if addresses(me).iter().any(|address| message.content.contains(address.as_str())) {
        return Mention::Inline;
    }
    let listed = message.mentions.iter().any(|user| user.id.get() == me);
    if listed { Mention::Listed } else { Mention::None }
}

fn others(message: &Message, me: u64) -> Others {
    let mut others = message.mentions.iter().filter(|user| user.id.get() != me).peekable();
    if others.peek().is_none() {
        return Others::None;
    }
    if others.any(|user| user.bot) { Others::Bots } else { Others::People }
}

/// The text without our own name, which only says whom it is for.
fn without_address(text: &str, me: u64) -> String {
    let mut bare = text.to_owned();
    for address in addresses(me) {
        bare = bare.replace(&address, "");
    }
    let bare = bare.trim();
    if bare.is_empty() { text.trim().to_owned() } else { bare.to_owned() }
}

fn addresses(me: u64) -> [String; 2] {
    [format!("<@{me}>"), format!("<@!{me}>")]
}

fn command(name: &str, options: &[Opt]) -> String {
    let mut words = vec![format!("/{name}")];
    collect(options, &mut words);
    words.join(" ")
}

fn collect(options: &[Opt], words: &mut Vec<String>) {
    for option in options {
        match &option.value {
            Some(Value::String(text)) => words.push(text.clone()),
            Some(other) => words.push(other.to_string()),
            None => words.push(option.name.clone()),
        }
        collect(&option.options, words);
    }
}

fn attached(file: &File) -> Attachment {
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
    (!text.trim().is_empty()).then(|| bounded(text.to_owned()))
}

fn thread_name(text: &str, author: &User) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let name: String = line.chars().take(THREAD_NAME).collect();
    if name.is_empty() { author.username.clone() } else { name }
}

/// A text above the limit is cut, and says so.
fn bounded(mut text: String) -> String {
    if text.len() <= TEXT_LIMIT {
        return text;
    }
    let size = text.len();
    text.truncate(text.floor_char_boundary(TEXT_LIMIT));
    text.push_str(&format!("\n[cut here: the message was {size} bytes long]"));
    text
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
