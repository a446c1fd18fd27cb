//! One update into one `Inbound`. Pure.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::value::RawValue;

use super::gate::{Gate, Scene, without_address};
use super::wire::{CallbackQuery, Chat, File, Me, Message, Numbered, Update, User};

/// Longest text that is taken; Telegram's own limit is far below.
const TEXT_LIMIT: usize = 1024 * 1024;
/// How the identity of a pressed button begins; Telegram's id of it follows.
const CALLBACK: &str = "cb:";
/// The topic of a forum that has no number on the wire.
pub(super) const GENERAL: &str = "1";

/// The update's number, which the offset needs even if we cannot read the rest.
pub(super) fn number(raw: &RawValue) -> Option<i64> {
    serde_json::from_str::<Numbered>(raw.get()).ok().map(|it| it.update_id)
}

/// `Ok(None)`: well formed, and not for us (a join notice, another bot).
pub(super) fn inbound(
    raw: &RawValue,
    platform: Platform,
    me: &Me,
    gate: &Gate,
) -> Result<Option<Inbound>, serde_json::Error> {
    let update: Update = serde_json::from_str(raw.get())?;
    if let Some(query) = update.callback_query {
        return Ok(pressed(query, platform));
    }
    let message = update.message.or(update.channel_post);
    Ok(message.and_then(|message| said(message, update.update_id, platform, me, gate)))
}

/// Telegram's id of the pressed button behind an event, if it is one.
pub(super) fn callback_id(dedup: &str) -> Option<&str> {
    dedup.strip_prefix(CALLBACK)
}

fn pressed(query: CallbackQuery, platform: Platform) -> Option<Inbound> {
    let message = query.message?;
    let mut source = place(&message, platform);
    source.user_id = Some(query.from.id.to_string());
    source.user_name = Some(full_name(&query.from));
    Some(Inbound::new(source, format!("{CALLBACK}{}", query.id), bounded(query.data?)))
}

fn said(mut message: Message, update_id: i64, platform: Platform, me: &Me, gate: &Gate) -> Option<Inbound> {
    if is_ours(&message, me) || is_other_bot(&message) {
        return None;
    }
    let text = message.text.take().or_else(|| message.caption.take()).unwrap_or_default();
    let attachments = attachments(&message);
    if text.trim().is_empty() && attachments.is_empty() {
        return None;
    }
    let mut source = place(&message, platform);
    let scene = Scene {
        private: source.chat_type == ChatType::Dm,
        chat: source.chat_id.as_deref().unwrap_or_default(),
        thread: source.thread_id.as_deref(),
        text: &text,
        name: &me.username,
        addressed: answers(&message, me) || names(&message, me),
    };
    if !gate.admits(&scene) {
        return None;
    }
    let overheard = !gate.is_addressed(&scene);
    source.overheard = overheard;
    let text = bounded(without_address(&text, &me.username).to_owned());
    speaker(&mut source, &message);
    Some(Inbound {
        source,
        dedup: update_id.to_string(),
        text,
        attachments,
        quoted: quoted(&message),
        context: None,
        sent_at: (message.date > 0).then(|| Millis(message.date.saturating_mul(1000))),
        internal: false,
        answer_to: None,
        fingerprints: vec![],
    })
}

fn is_ours(message: &Message, me: &Me) -> bool {
    message.from.as_ref().is_some_and(|from| from.id == me.id)
}

/// Someone who speaks as a chat comes with a stand-in bot as sender; that is a person.
fn is_other_bot(message: &Message) -> bool {
    message.sender_chat.is_none() && message.from.as_ref().is_some_and(|from| from.is_bot)
}

fn answers(message: &Message, me: &Me) -> bool {
    let replied = message.reply_to_message.as_deref().filter(|it| it.forum_topic_created.is_none());
    replied.is_some_and(|it| is_ours(it, me))
}

fn names(message: &Message, me: &Me) -> bool {
    let mut entities = message.entities.iter().chain(&message.caption_entities);
    entities.any(|entity| entity.user.as_ref().is_some_and(|user| user.id == me.id))
}

/// Where it was said.
fn place(message: &Message, platform: Platform) -> Source {
    let chat = &message.chat;
    let chat_type = match chat.kind.as_str() {
        "private" => ChatType::Dm,
        "channel" => ChatType::Channel,
        _group if chat.is_forum => ChatType::Forum,
        _group => ChatType::Group,
    };
    let mut source = Source::new(platform, chat_type, chat.id.to_string());
    source.chat_name = chat_name(chat);
    source.message_id = Some(message.message_id.to_string());
    // A plain group numbers its reply chains, too; those are no topics.
    source.thread_id = match message.message_thread_id {
        Some(thread) if message.is_topic_message => Some(thread.to_string()),
        Some(_) | None => (chat_type == ChatType::Forum).then(|| GENERAL.to_owned()),
    };
    let opening = message.reply_to_message.as_deref().and_then(|it| it.forum_topic_created.as_ref());
    source.chat_topic = opening.map(|topic| topic.name.clone());
    source
}

fn speaker(source: &mut Source, message: &Message) {
    if let Some(chat) = &message.sender_chat {
        source.user_id = Some(chat.id.to_string());
        source.user_name = chat_name(chat);
    } else if let Some(user) = &message.from {
        source.user_id = Some(user.id.to_string());
        source.user_name = Some(full_name(user));
    }
}

fn full_name(user: &User) -> String {
    let name = joined(&user.first_name, user.last_name.as_deref());
    if name.is_empty() { user.username.clone().unwrap_or_default() } else { name }
}

fn chat_name(chat: &Chat) -> Option<String> {
    let person = joined(chat.first_name.as_deref().unwrap_or_default(), chat.last_name.as_deref());
    let person = Some(person).filter(|name| !name.is_empty());
    chat.title.clone().or(person).or_else(|| chat.username.clone())
}

fn joined(first: &str, last: Option<&str>) -> String {
    format!("{first} {}", last.unwrap_or_default()).trim().to_owned()
}

/// The marked passage if there is one, else the whole text that is answered.
fn quoted(message: &Message) -> Option<String> {
    let passage = message.quote.as_ref().map(|quote| quote.text.clone());
    let whole = || {
        let replied = message.reply_to_message.as_deref()?;
        replied.text.clone().or_else(|| replied.caption.clone())
    };
    passage.or_else(whole).filter(|text| !text.is_empty()).map(bounded)
}

fn attachments(message: &Message) -> Vec<Attachment> {
    // Telegram lists the sizes of one photo, the largest last; an animation comes as a document, too.
    let document = message.document.as_ref().filter(|_| message.animation.is_none());
    let files = [
        ("photo", message.photo.last()),
        ("voice", message.voice.as_ref()),
        ("audio", message.audio.as_ref()),
        ("video", message.video.as_ref()),
        ("video_note", message.video_note.as_ref()),
        ("animation", message.animation.as_ref()),
        ("document", document),
        ("sticker", message.sticker.as_ref()),
    ];
    let mut found: Vec<_> =
        files.into_iter().filter_map(|(kind, file)| file.map(|file| attached(kind, file))).collect();
    found.extend(message.location.as_ref().map(|at| Attachment {
        kind: "location".into(),
        reference: format!("{},{}", at.latitude, at.longitude),
        name: message.venue.as_ref().map(|venue| venue.title.clone()),
        ..Attachment::default()
    }));
    found.extend(message.contact.as_ref().map(|contact| Attachment {
        kind: "contact".into(),
        reference: contact.phone_number.clone(),
        name: Some(joined(&contact.first_name, contact.last_name.as_deref())),
        ..Attachment::default()
    }));
    found.extend(message.poll.as_ref().map(|poll| Attachment {
        kind: "poll".into(),
        reference: poll.id.clone(),
        name: Some(poll.question.clone()),
        ..Attachment::default()
    }));
    found
}

fn attached(kind: &str, file: &File) -> Attachment {
    let name = file.file_name.as_ref().or(file.title.as_ref()).or(file.emoji.as_ref());
    Attachment {
        kind: kind.to_owned(),
        reference: file.file_id.clone(),
        name: name.cloned(),
        mime: file.mime_type.clone(),
        size: file.file_size,
        ..Attachment::default()
    }
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
