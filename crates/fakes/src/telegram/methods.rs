//! The methods of the Bot API, each a function from the world and the parameters to an answer.
//!
//! `getUpdates` is not here: it waits (see `http`).

use serde_json::{Value, json};

use super::chat::{Draft, Place, Said};
use super::incoming::bot;
use super::markdown::{self, Formatted};
use super::params::{Params, as_int};
use super::refusal::{Answer, Refusal};
use super::webhook;
use super::world::{Change, World};
use crate::files::Upload;
use crate::keep::Keep;

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

/// The documented spelling; what is unknown stays as it is.
pub(crate) fn canonical(method: &str) -> &str {
    METHODS.iter().find(|known| known.eq_ignore_ascii_case(method)).copied().unwrap_or(method)
}

/// `method` in its documented spelling.
pub(crate) fn apply(world: &mut World, method: &str, params: &Params) -> (Answer, Option<Change>) {
    let done = match method {
        "getMe" => Ok((me(), None)),
        "setWebhook" => webhook::set(world, params).map(|set| (set, None)),
        "deleteWebhook" => Ok((webhook::delete(world, params), None)),
        "getWebhookInfo" => Ok((webhook::info(world), None)),
        "setMyCommands" => Ok((set_commands(world, params), None)),
        "sendMessage" => send(world, params, said(params), None),
        "sendPhoto" => send_file(world, params, "photo"),
        "sendDocument" => send_file(world, params, "document"),
        "sendVoice" => send_file(world, params, "voice"),
        "sendAudio" => send_file(world, params, "audio"),
        "sendVideo" => send_file(world, params, "video"),
        "editMessageText" => edit(world, params),
        "editMessageReplyMarkup" => edit_markup(world, params),
        "deleteMessage" => delete(world, params),
        "sendChatAction" => chat_action(world, params),
        "setMessageReaction" => react(world, params),
        "sendMessageDraft" => draft(world, params),
        "createForumTopic" => create_topic(world, params),
        "answerCallbackQuery" => answer_callback(world, params),
        "getFile" => file(world, params),
        _unknown => Err(Refusal::not_found()),
    };
    match done {
        Ok((result, change)) => (Ok(result), change),
        Err(refusal) => (Err(refusal), None),
    }
}

type Done = Result<(Value, Option<Change>), Refusal>;

fn me() -> Value {
    let mut me = bot();
    me["can_join_groups"] = true.into();
    me["can_read_all_group_messages"] = false.into();
    me["supports_inline_queries"] = false.into();
    me
}

fn set_commands(world: &mut World, params: &Params) -> Value {
    world.commands = params.json("commands").unwrap_or_default();
    true.into()
}

/// A file below which a caption stands, which may be empty. What is no picture is refused as one.
fn send_file(world: &mut World, params: &Params, field: &str) -> Done {
    let missing = || Refusal::bad(format_args!("there is no {field} in the request"));
    let file = params.1.iter().find(|file| file.field == field).ok_or_else(missing)?;
    let picture = [&b"\xff\xd8\xff"[..], b"\x89PNG", b"GIF8", b"RIFF"];
    if field == "photo" && !picture.iter().any(|head| file.content.starts_with(head)) {
        return Err(Refusal::bad("IMAGE_PROCESS_FAILED"));
    }
    send(world, params, caption(params), Some(file.clone()))
}

fn send(world: &mut World, params: &Params, said: Result<Said, Refusal>, file: Option<Upload>) -> Done {
    let chat = params.chat()?;
    let said = Said { file, ..said? };
    let keep = world.keep.unwrap_or(Keep::All);
    let board = world.chat_mut(chat);
    let thread = params.int("message_thread_id");
    board.check_thread(thread)?;
    let reply_to = reply_target(params, |id| board.existed(id))?;
    let place = Place { thread, reply_to, silent: params.flag("disable_notification") };
    let message = board.send(chat, said, place, keep);
    world.sent += 1;
    Ok((message.wire(), Some(Change::Sent(message))))
}

/// `None`: no reply, or its target is gone and the bot does not mind.
fn reply_target(params: &Params, existed: impl Fn(i64) -> bool) -> Result<Option<i64>, Refusal> {
    let reply = params.json("reply_parameters").unwrap_or_default();
    let named = reply.get("message_id").and_then(as_int).or_else(|| params.int("reply_to_message_id"));
    let lenient = params.flag("allow_sending_without_reply") || reply["allow_sending_without_reply"] == true;
    match named {
        None => Ok(None),
        Some(id) if existed(id) => Ok(Some(id)),
        Some(_gone) if lenient => Ok(None),
        Some(_gone) => Err(Refusal::bad("message to be replied not found")),
    }
}

fn edit(world: &mut World, params: &Params) -> Done {
    let (chat, id) = target(params, "message to edit not found")?;
    let said = said(params)?;
    let message = world.chat_mut(chat).edit(id, said)?;
    Ok((message.wire(), Some(Change::Edited(message))))
}

fn edit_markup(world: &mut World, params: &Params) -> Done {
    let (chat, id) = target(params, "message to edit not found")?;
    let message = world.chat_mut(chat).edit_markup(id, markup(params)?)?;
    Ok((message.wire(), Some(Change::Edited(message))))
}

fn delete(world: &mut World, params: &Params) -> Done {
    let (chat, id) = target(params, "message to delete not found")?;
    world.chat_mut(chat).delete(id)?;
    Ok((true.into(), Some(Change::Deleted { chat, id })))
}

fn chat_action(world: &mut World, params: &Params) -> Done {
    let chat = params.chat()?;
    if params.str("action").is_none_or(str::is_empty) {
        return Err(Refusal::bad("wrong parameter action in request"));
    }
    world.chat_mut(chat).check_thread(params.int("message_thread_id"))?;
    Ok((true.into(), Some(Change::Typing { chat })))
}

fn react(world: &mut World, params: &Params) -> Done {
    let (chat, id) = target(params, "message to react not found")?;
    let board = world.chat_mut(chat);
    if !board.existed(id) {
        return Err(Refusal::bad("message to react not found"));
    }
    let reaction = params.json("reaction").unwrap_or_default();
    let list = reaction.as_array().map(Vec::as_slice).unwrap_or_default();
    let emoji: Vec<String> = list.iter().filter_map(|one| one["emoji"].as_str()).map(str::to_owned).collect();
    board.reactions.insert(id, emoji.clone());
    Ok((true.into(), Some(Change::Reacted { chat, id, emoji })))
}

fn draft(world: &mut World, params: &Params) -> Done {
    let chat = params.chat()?;
    let id = params.int("draft_id").filter(|id| *id != 0);
    let id = id.ok_or_else(|| Refusal::bad("draft_id must be non-zero"))?;
    let formatted = formatted(params, "text")?;
    check_length(&formatted.text)?;
    let thread = params.int("message_thread_id");
    let board = world.chat_mut(chat);
    board.check_thread(thread)?;
    let draft = Draft { id, text: formatted.text, thread };
    board.draft = Some(draft.clone());
    Ok((true.into(), Some(Change::Drafted { chat, draft })))
}

fn create_topic(world: &mut World, params: &Params) -> Done {
    let chat = params.chat()?;
    let Some(name) = params.str("name").filter(|name| !name.is_empty()) else {
        return Err(Refusal::bad("TOPIC_NAME_INVALID"));
    };
    let board = world.chat_mut(chat);
    let thread = board.next_id();
    board.add_topic(thread);
    Ok((json!({"message_thread_id": thread, "name": name, "icon_color": 7_322_096}), None))
}

fn answer_callback(world: &mut World, params: &Params) -> Done {
    if !params.str("callback_query_id").is_some_and(|id| world.callbacks.contains(id)) {
        let why = "query is too old and response timeout expired or query ID is invalid";
        return Err(Refusal::bad(why));
    }
    Ok((true.into(), None))
}

fn file(world: &mut World, params: &Params) -> Done {
    let id = params.str("file_id").unwrap_or_default();
    let Some(content) = world.files.get(id) else {
        return Err(Refusal::bad("invalid file_id"));
    };
    let unique = format!("u{id}");
    Ok((json!({"file_id": id, "file_unique_id": unique, "file_size": content.len(), "file_path": id}), None))
}

fn target(params: &Params, missing: &'static str) -> Result<(i64, i64), Refusal> {
    let chat = params.chat()?;
    let id = params.int("message_id").ok_or_else(|| Refusal::bad(missing))?;
    Ok((chat, id))
}

fn caption(params: &Params) -> Result<Said, Refusal> {
    let formatted = formatted(params, "caption")?;
    if formatted.text.encode_utf16().count() > LONGEST_CAPTION {
        return Err(Refusal::bad("message caption is too long"));
    }
    words(params, "caption", formatted)
}

fn said(params: &Params) -> Result<Said, Refusal> {
    let formatted = formatted(params, "text")?;
    if formatted.text.is_empty() {
        return Err(Refusal::bad("message text is empty"));
    }
    check_length(&formatted.text)?;
    words(params, "text", formatted)
}

fn words(params: &Params, field: &str, formatted: Formatted) -> Result<Said, Refusal> {
    Ok(Said {
        file: None,
        source: params.str(field).unwrap_or_default().to_owned(),
        formatted,
        parse_mode: params.str("parse_mode").filter(|mode| !mode.is_empty()).map(str::to_owned),
        reply_markup: markup(params)?,
    })
}

/// Only MarkdownV2 is understood; HTML and old Markdown are shown with their marks.
fn formatted(params: &Params, field: &str) -> Result<Formatted, Refusal> {
    let source = params.str(field).unwrap_or_default();
    let mut formatted = match params.str("parse_mode").unwrap_or_default() {
        "" => Formatted { text: source.to_owned(), entities: Vec::new() },
        mode if mode.eq_ignore_ascii_case("MarkdownV2") => markdown::parse(source)
            .map_err(|why| Refusal::bad(format_args!("can't parse entities: {why}")))?,
        mode if mode.eq_ignore_ascii_case("HTML") || mode.eq_ignore_ascii_case("Markdown") => {
            Formatted { text: source.to_owned(), entities: Vec::new() }
        }
        _unknown => return Err(Refusal::bad("unsupported parse_mode")),
    };
    formatted.text.truncate(formatted.text.trim_end().len());
    Ok(formatted)
}

/// The limit counts what is visible, in UTF-16 units.
fn check_length(text: &str) -> Result<(), Refusal> {
    // A UTF-8 byte is never less than one unit, so short texts need no counting.
    if text.len() > LONGEST_TEXT && text.encode_utf16().count() > LONGEST_TEXT {
        return Err(Refusal::bad("message is too long"));
    }
    Ok(())
}

fn markup(params: &Params) -> Result<Option<Value>, Refusal> {
    if params.get("reply_markup").is_none() {
        return Ok(None);
    }
    let markup = params.json("reply_markup").filter(Value::is_object);
    let markup = markup.ok_or_else(|| Refusal::bad("object expected as reply markup"))?;
    let rows = markup["inline_keyboard"].as_array().map(Vec::as_slice).unwrap_or_default();
    let buttons = rows.iter().filter_map(Value::as_array).flatten();
    for data in buttons.filter_map(|button| button["callback_data"].as_str()) {
        if data.is_empty() || data.len() > 64 {
            return Err(Refusal::bad("BUTTON_DATA_INVALID"));
        }
    }
    // An empty keyboard is no keyboard.
    let empty = markup.as_object().is_some_and(serde_json::Map::is_empty)
        || (markup.get("inline_keyboard").is_some() && rows.is_empty());
    Ok((!empty).then_some(markup))
}
