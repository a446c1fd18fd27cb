//! Parses one update into an `Inbound`. Pure.

use petasos_core::message::{Attachment, ChatType};
use petasos_core::{Inbound, Millis, Platform, Source};
use serde_json::value::RawValue;

use super::filter::{FilterInput, MessageFilter, strip_leading_mention};
use super::wire::{
    BotUser, CallbackQuery, TelegramChat, TelegramFile, TelegramMessage, Update, UpdateId, User,
};
use crate::inbound::truncated;

/// Prefix of the dedup key of a pressed button; the callback id follows.
const CALLBACK: &str = "cb:";
/// The general topic of a forum, which has no id on the wire.
pub(super) const GENERAL: &str = "1";

/// The update's id, which the offset needs even if the rest is unreadable.
pub(super) fn update_id(raw: &RawValue) -> Option<i64> {
    serde_json::from_str::<UpdateId>(raw.get()).ok().map(|it| it.update_id)
}

/// `Ok(None)`: well-formed, but not for the bot.
pub(super) fn inbound(
    raw: &RawValue,
    platform: Platform,
    me: &BotUser,
    filter: &MessageFilter,
) -> Result<Option<Inbound>, serde_json::Error> {
    let update: Update = serde_json::from_str(raw.get())?;
    if let Some(query) = update.callback_query {
        return Ok(button_press(query, platform));
    }
    let message = update.message.or(update.channel_post);
    Ok(message.and_then(|message| message_event(message, update.update_id, platform, me, filter)))
}

/// The callback id behind a dedup key, if the event is a pressed button.
pub(super) fn callback_id(dedup: &str) -> Option<&str> {
    dedup.strip_prefix(CALLBACK)
}

fn button_press(query: CallbackQuery, platform: Platform) -> Option<Inbound> {
    let message = query.message?;
    let mut source = source_of(&message, platform);
    source.user_id = Some(query.from.id.to_string());
    source.user_name = Some(full_name(&query.from));
    Some(Inbound::new(source, format!("{CALLBACK}{}", query.id), truncated(query.data?)))
}

fn message_event(
    mut message: TelegramMessage,
    update_id: i64,
    platform: Platform,
    me: &BotUser,
    filter: &MessageFilter,
) -> Option<Inbound> {
    if is_from_bot(&message, me) || is_from_other_bot(&message) {
        return None;
    }
    let text = message.text.take().or_else(|| message.caption.take()).unwrap_or_default();
    let attachments = attachments(&message);
    if text.trim().is_empty() && attachments.is_empty() {
        return None;
    }
    let mut source = source_of(&message, platform);
    let input = FilterInput {
        private: source.chat_type == ChatType::Dm,
        chat: source.chat_id.as_deref().unwrap_or_default(),
        thread: source.thread_id.as_deref(),
        text: &text,
        name: &me.username,
        addressed: replies_to_bot(&message, me) || mentions_bot(&message, me),
    };
    if !filter.accepts(&input) {
        return None;
    }
    let overheard = !filter.is_addressed(&input);
    source.unaddressed = overheard;
    let text = truncated(strip_leading_mention(&text, &me.username).to_owned());
    set_author(&mut source, &message);
    Some(Inbound {
        source,
        dedup: update_id.to_string(),
        text,
        attachments,
        quoted: quoted(&message),
        context: None,
        sent_at: (message.date > 0).then(|| Millis(message.date.saturating_mul(1000))),
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    })
}

fn is_from_bot(message: &TelegramMessage, me: &BotUser) -> bool {
    message.from.as_ref().is_some_and(|from| from.id == me.id)
}

/// A person who speaks as a chat is sent with a stand-in bot as author.
fn is_from_other_bot(message: &TelegramMessage) -> bool {
    message.sender_chat.is_none() && message.from.as_ref().is_some_and(|from| from.is_bot)
}

fn replies_to_bot(message: &TelegramMessage, me: &BotUser) -> bool {
    let replied = message.reply_to_message.as_deref().filter(|it| it.forum_topic_created.is_none());
    replied.is_some_and(|it| is_from_bot(it, me))
}

fn mentions_bot(message: &TelegramMessage, me: &BotUser) -> bool {
    let mut entities = message.entities.iter().chain(&message.caption_entities);
    entities.any(|entity| entity.user.as_ref().is_some_and(|user| user.id == me.id))
}

fn source_of(message: &TelegramMessage, platform: Platform) -> Source {
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
    // Plain groups also number reply chains; those are not topics.
    source.thread_id = match message.message_thread_id {
        Some(thread) if message.is_topic_message => Some(thread.to_string()),
        Some(_) | None => (chat_type == ChatType::Forum).then(|| GENERAL.to_owned()),
    };
    let opening = message.reply_to_message.as_deref().and_then(|it| it.forum_topic_created.as_ref());
    source.chat_topic = opening.map(|topic| topic.name.clone());
    source
}

fn set_author(source: &mut Source, message: &TelegramMessage) {
    if let Some(chat) = &message.sender_chat {
        source.user_id = Some(chat.id.to_string());
        source.user_name = chat_name(chat);
    } else if let Some(user) = &message.from {
        source.user_id = Some(user.id.to_string());
        source.user_name = Some(full_name(user));
    }
}

fn full_name(user: &User) -> String {
    let name = joined_name(&user.first_name, user.last_name.as_deref());
    if name.is_empty() { user.username.clone().unwrap_or_default() } else { name }
}

fn chat_name(chat: &TelegramChat) -> Option<String> {
    let person = joined_name(chat.first_name.as_deref().unwrap_or_default(), chat.last_name.as_deref());
    let person = Some(person).filter(|name| !name.is_empty());
    chat.title.clone().or(person).or_else(|| chat.username.clone())
}

fn joined_name(first: &str, last: Option<&str>) -> String {
    format!("{first} {}", last.unwrap_or_default()).trim().to_owned()
}

/// The quoted passage if there is one, else the whole message replied to.
fn quoted(message: &TelegramMessage) -> Option<String> {
    let passage = message.quote.as_ref().map(|quote| quote.text.clone());
    let whole = || {
        let replied = message.reply_to_message.as_deref()?;
        replied.text.clone().or_else(|| replied.caption.clone())
    };
    passage.or_else(whole).filter(|text| !text.is_empty()).map(truncated)
}

fn attachments(message: &TelegramMessage) -> Vec<Attachment> {
    // A photo is listed in several sizes, the largest last. An animation is sent as a document, too.
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
        files.into_iter().filter_map(|(kind, file)| file.map(|file| attachment(kind, file))).collect();
    found.extend(message.location.as_ref().map(|at| Attachment {
        kind: "location".into(),
        reference: format!("{},{}", at.latitude, at.longitude),
        name: message.venue.as_ref().map(|venue| venue.title.clone()),
        ..Attachment::default()
    }));
    found.extend(message.contact.as_ref().map(|contact| Attachment {
        kind: "contact".into(),
        reference: contact.phone_number.clone(),
        name: Some(joined_name(&contact.first_name, contact.last_name.as_deref())),
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

fn attachment(kind: &str, file: &TelegramFile) -> Attachment {
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

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
