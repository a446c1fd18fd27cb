//! The methods of the Bot API, each a function of the state and the parameters.
//!
//! `getUpdates` waits, and is therefore in `http`.

use serde_json::{Value, json};

use super::chat::{Content, MessageDraft, SendOptions};
use super::error::{MethodResult, ServiceError};
use super::incoming::bot;
use super::markdown::{self, Formatted};
use super::params::{Params, as_int};
use super::state::{State, VisibleChange};
use super::webhook;
use crate::server::files::Upload;
use crate::server::log::Retention;

const LONGEST_TEXT: usize = 4096;
const LONGEST_CAPTION: usize = 1024;
const METHODS: &[&str] = &[
    "getMe",
    "setWebhook",
    "deleteWebhook",
    "getUpdates",
    "getWebhookInfo",
    "setMyCommands",
    "sendMessage",
    "sendPhoto",
    "sendDocument",
    "sendVoice",
    "sendAudio",
    "sendVideo",
    "editMessageText",
    "editMessageReplyMarkup",
    "deleteMessage",
    "sendChatAction",
    "setMessageReaction",
    "sendMessageDraft",
    "createForumTopic",
    "answerCallbackQuery",
    "getFile",
];

/// The documented spelling of a method; unknown ones stay as they are.
pub(crate) fn canonical(method: &str) -> &str {
    METHODS.iter().find(|known| known.eq_ignore_ascii_case(method)).copied().unwrap_or(method)
}

/// `method` in its documented spelling.
pub(crate) fn apply(
    state: &mut State,
    method: &str,
    params: &Params,
) -> (MethodResult, Option<VisibleChange>) {
    let applied = match method {
        "getMe" => Ok((me(), None)),
        "setWebhook" => webhook::set(state, params).map(|set| (set, None)),
        "deleteWebhook" => Ok((webhook::delete(state, params), None)),
        "getWebhookInfo" => Ok((webhook::info(state), None)),
        "setMyCommands" => Ok((set_commands(state, params), None)),
        "sendMessage" => send(state, params, text_content(params), None),
        "sendPhoto" => send_file(state, params, "photo"),
        "sendDocument" => send_file(state, params, "document"),
        "sendVoice" => send_file(state, params, "voice"),
        "sendAudio" => send_file(state, params, "audio"),
        "sendVideo" => send_file(state, params, "video"),
        "editMessageText" => edit(state, params),
        "editMessageReplyMarkup" => edit_markup(state, params),
        "deleteMessage" => delete(state, params),
        "sendChatAction" => chat_action(state, params),
        "setMessageReaction" => react(state, params),
        "sendMessageDraft" => draft(state, params),
        "createForumTopic" => create_topic(state, params),
        "answerCallbackQuery" => answer_callback(state, params),
        "getFile" => file(state, params),
        _unknown => Err(ServiceError::not_found()),
    };
    match applied {
        Ok((result, change)) => (Ok(result), change),
        Err(error) => (Err(error), None),
    }
}

type Applied = Result<(Value, Option<VisibleChange>), ServiceError>;

fn me() -> Value {
    let mut me = bot();
    me["can_join_groups"] = true.into();
    me["can_read_all_group_messages"] = false.into();
    me["supports_inline_queries"] = false.into();
    me
}

fn set_commands(state: &mut State, params: &Params) -> Value {
    state.commands = params.json("commands").unwrap_or_default();
    true.into()
}

/// Sends a file with an optional caption. A photo must be a picture.
fn send_file(state: &mut State, params: &Params, field: &str) -> Applied {
    let missing = || ServiceError::bad_request(format_args!("there is no {field} in the request"));
    let file = params.1.iter().find(|file| file.field == field).ok_or_else(missing)?;
    let picture = [&b"\xff\xd8\xff"[..], b"\x89PNG", b"GIF8", b"RIFF"];
    if field == "photo" && !picture.iter().any(|head| file.content.starts_with(head)) {
        return Err(ServiceError::bad_request("IMAGE_PROCESS_FAILED"));
    }
    send(state, params, caption_content(params), Some(file.clone()))
}

fn send(
    state: &mut State,
    params: &Params,
    content: Result<Content, ServiceError>,
    file: Option<Upload>,
) -> Applied {
    let chat = params.chat()?;
    let content = Content { file, ..content? };
    let retention = state.retention.unwrap_or(Retention::All);
    let target_chat = state.chat_mut(chat);
    let thread = params.int("message_thread_id");
    target_chat.check_thread(thread)?;
    let reply_to = reply_target(params, |id| target_chat.existed(id))?;
    let options = SendOptions { thread, reply_to, silent: params.flag("disable_notification") };
    let message = target_chat.send(chat, content, options, retention);
    state.sent += 1;
    Ok((message.to_json(), Some(VisibleChange::Sent(message))))
}

/// `None`: not a reply, or its target is gone and the request allows that.
fn reply_target(params: &Params, existed: impl Fn(i64) -> bool) -> Result<Option<i64>, ServiceError> {
    let reply = params.json("reply_parameters").unwrap_or_default();
    let named = reply.get("message_id").and_then(as_int).or_else(|| params.int("reply_to_message_id"));
    let lenient = params.flag("allow_sending_without_reply") || reply["allow_sending_without_reply"] == true;
    match named {
        None => Ok(None),
        Some(id) if existed(id) => Ok(Some(id)),
        Some(_gone) if lenient => Ok(None),
        Some(_gone) => Err(ServiceError::bad_request("message to be replied not found")),
    }
}

fn edit(state: &mut State, params: &Params) -> Applied {
    let (chat, id) = target(params, "message to edit not found")?;
    let content = text_content(params)?;
    let message = state.chat_mut(chat).edit(id, content)?;
    Ok((message.to_json(), Some(VisibleChange::Edited(message))))
}

fn edit_markup(state: &mut State, params: &Params) -> Applied {
    let (chat, id) = target(params, "message to edit not found")?;
    let message = state.chat_mut(chat).edit_markup(id, markup(params)?)?;
    Ok((message.to_json(), Some(VisibleChange::Edited(message))))
}

fn delete(state: &mut State, params: &Params) -> Applied {
    let (chat, id) = target(params, "message to delete not found")?;
    state.chat_mut(chat).delete(id)?;
    Ok((true.into(), Some(VisibleChange::Deleted { chat, id })))
}

fn chat_action(state: &mut State, params: &Params) -> Applied {
    let chat = params.chat()?;
    if params.str("action").is_none_or(str::is_empty) {
        return Err(ServiceError::bad_request("wrong parameter action in request"));
    }
    state.chat_mut(chat).check_thread(params.int("message_thread_id"))?;
    Ok((true.into(), Some(VisibleChange::Typing { chat })))
}

fn react(state: &mut State, params: &Params) -> Applied {
    let (chat, id) = target(params, "message to react not found")?;
    let target_chat = state.chat_mut(chat);
    if !target_chat.existed(id) {
        return Err(ServiceError::bad_request("message to react not found"));
    }
    let reaction = params.json("reaction").unwrap_or_default();
    let list = reaction.as_array().map(Vec::as_slice).unwrap_or_default();
    let emoji: Vec<String> = list.iter().filter_map(|one| one["emoji"].as_str()).map(str::to_owned).collect();
    target_chat.reactions.insert(id, emoji.clone());
    Ok((true.into(), Some(VisibleChange::Reacted { chat, id, emoji })))
}

fn draft(state: &mut State, params: &Params) -> Applied {
    let chat = params.chat()?;
    let id = params.int("draft_id").filter(|id| *id != 0);
    let id = id.ok_or_else(|| ServiceError::bad_request("draft_id must be non-zero"))?;
    let formatted = formatted(params, "text")?;
    check_length(&formatted.text)?;
    let thread = params.int("message_thread_id");
    let target_chat = state.chat_mut(chat);
    target_chat.check_thread(thread)?;
    let draft = MessageDraft { id, text: formatted.text, thread };
    target_chat.draft = Some(draft.clone());
    Ok((true.into(), Some(VisibleChange::Drafted { chat, draft })))
}

fn create_topic(state: &mut State, params: &Params) -> Applied {
    let chat = params.chat()?;
    let Some(name) = params.str("name").filter(|name| !name.is_empty()) else {
        return Err(ServiceError::bad_request("TOPIC_NAME_INVALID"));
    };
    let target_chat = state.chat_mut(chat);
    let thread = target_chat.next_id();
    target_chat.add_topic(thread);
    Ok((json!({"message_thread_id": thread, "name": name, "icon_color": 7_322_096}), None))
}

fn answer_callback(state: &mut State, params: &Params) -> Applied {
    if !params.str("callback_query_id").is_some_and(|id| state.callbacks.contains(id)) {
        let why = "query is too old and response timeout expired or query ID is invalid";
        return Err(ServiceError::bad_request(why));
    }
    Ok((true.into(), None))
}

fn file(state: &mut State, params: &Params) -> Applied {
    let id = params.str("file_id").unwrap_or_default();
    let Some(content) = state.files.get(id) else {
        return Err(ServiceError::bad_request("invalid file_id"));
    };
    let unique = format!("u{id}");
    Ok((json!({"file_id": id, "file_unique_id": unique, "file_size": content.len(), "file_path": id}), None))
}

fn target(params: &Params, missing: &'static str) -> Result<(i64, i64), ServiceError> {
    let chat = params.chat()?;
    let id = params.int("message_id").ok_or_else(|| ServiceError::bad_request(missing))?;
    Ok((chat, id))
}

fn caption_content(params: &Params) -> Result<Content, ServiceError> {
    let formatted = formatted(params, "caption")?;
    if formatted.text.encode_utf16().count() > LONGEST_CAPTION {
        return Err(ServiceError::bad_request("message caption is too long"));
    }
    content(params, "caption", formatted)
}

fn text_content(params: &Params) -> Result<Content, ServiceError> {
    let formatted = formatted(params, "text")?;
    if formatted.text.is_empty() {
        return Err(ServiceError::bad_request("message text is empty"));
    }
    check_length(&formatted.text)?;
    content(params, "text", formatted)
}

fn content(params: &Params, field: &str, formatted: Formatted) -> Result<Content, ServiceError> {
    Ok(Content {
        file: None,
        source: params.str(field).unwrap_or_default().to_owned(),
        formatted,
        parse_mode: params.str("parse_mode").filter(|mode| !mode.is_empty()).map(str::to_owned),
        reply_markup: markup(params)?,
    })
}

/// Only MarkdownV2 is parsed; HTML and legacy Markdown stay as they are.
fn formatted(params: &Params, field: &str) -> Result<Formatted, ServiceError> {
    let source = params.str(field).unwrap_or_default();
    let mut formatted = match params.str("parse_mode").unwrap_or_default() {
        "" => Formatted { text: source.to_owned(), entities: Vec::new() },
        mode if mode.eq_ignore_ascii_case("MarkdownV2") => markdown::parse(source)
            .map_err(|why| ServiceError::bad_request(format_args!("can't parse entities: {why}")))?,
        mode if mode.eq_ignore_ascii_case("HTML") || mode.eq_ignore_ascii_case("Markdown") => {
            Formatted { text: source.to_owned(), entities: Vec::new() }
        }
        _unknown => return Err(ServiceError::bad_request("unsupported parse_mode")),
    };
    formatted.text.truncate(formatted.text.trim_end().len());
    Ok(formatted)
}

/// The limit applies to the visible text, in UTF-16 units.
fn check_length(text: &str) -> Result<(), ServiceError> {
    // No text has more UTF-16 units than UTF-8 bytes.
    if text.len() > LONGEST_TEXT && text.encode_utf16().count() > LONGEST_TEXT {
        return Err(ServiceError::bad_request("message is too long"));
    }
    Ok(())
}

fn markup(params: &Params) -> Result<Option<Value>, ServiceError> {
    if params.get("reply_markup").is_none() {
        return Ok(None);
    }
    let markup = params.json("reply_markup").filter(Value::is_object);
    let markup = markup.ok_or_else(|| ServiceError::bad_request("object expected as reply markup"))?;
    let rows = markup["inline_keyboard"].as_array().map(Vec::as_slice).unwrap_or_default();
    let buttons = rows.iter().filter_map(Value::as_array).flatten();
    for data in buttons.filter_map(|button| button["callback_data"].as_str()) {
        if data.is_empty() || data.len() > 64 {
            return Err(ServiceError::bad_request("BUTTON_DATA_INVALID"));
        }
    }
    // An empty keyboard counts as none.
    let empty = markup.as_object().is_some_and(serde_json::Map::is_empty)
        || (markup.get("inline_keyboard").is_some() && rows.is_empty());
    Ok((!empty).then_some(markup))
}
