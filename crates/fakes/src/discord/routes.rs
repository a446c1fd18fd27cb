//! The routes of the REST API, each a function from the world and the request to an answer.

use serde_json::{Value, json};

use super::channel::{Channel, FORUM, Message, THREAD};
use super::http::Asked;
use super::incoming::{APPLICATION_ID, BOT_ID, person};
use super::refusal::Refusal;
use super::world::{Change, World};
use crate::files::Upload;

const LONGEST_TEXT: usize = 2000;
const LONGEST_NONCE: usize = 25;
const LARGEST_FILE: usize = 10 << 20;

/// A request's name and the numbers in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) channel: Option<u64>,
    message: u64,
    /// What is neither: an emoji, an interaction's token.
    word: String,
}

/// `path` without `/api/v10`.
pub(crate) fn find(method: &str, path: &str) -> Route {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let id = |text: &str| text.parse::<u64>().unwrap_or_default();
    let route = |name: &str, channel: Option<u64>, message: u64, word: &str| Route {
        name: name.to_owned(),
        channel,
        message,
        word: word.to_owned(),
    };
    let here = |name: &str, channel: &str| route(name, Some(id(channel)), 0, "");
    match (method, parts.as_slice()) {
        ("GET", ["gateway", "bot"]) => route("getGateway", None, 0, ""),
        ("GET", ["users", "@me"]) => route("getMe", None, 0, ""),
        ("GET", ["applications", "@me"]) => route("getApplication", None, 0, ""),
        ("GET", ["users", "@me", "guilds"]) => route("getGuilds", None, 0, ""),
        ("GET", ["guilds", guild, "channels"]) => route("getGuildChannels", None, id(guild), ""),
        ("GET", ["guilds", guild, "threads", "active"]) => route("getActiveThreads", None, id(guild), ""),
        ("GET", ["channels", channel]) => here("getChannel", channel),
        ("GET", ["channels", channel, "messages"]) => here("getMessages", channel),
        ("POST", ["channels", channel, "messages"]) => here("createMessage", channel),
        ("POST", ["channels", channel, "typing"]) => here("typing", channel),
        ("POST", ["channels", channel, "threads"]) => here("createThread", channel),
        ("PATCH", ["channels", channel, "messages", message]) => {
            route("editMessage", Some(id(channel)), id(message), "")
        }
        ("DELETE", ["channels", channel, "messages", message]) => {
            route("deleteMessage", Some(id(channel)), id(message), "")
        }
        ("POST", ["channels", channel, "messages", message, "threads"]) => {
            route("startThread", Some(id(channel)), id(message), "")
        }
        ("PUT", ["channels", channel, "messages", message, "reactions", emoji, "@me"]) => {
            route("react", Some(id(channel)), id(message), emoji)
        }
        ("DELETE", ["channels", channel, "messages", message, "reactions", emoji, "@me"]) => {
            route("unreact", Some(id(channel)), id(message), emoji)
        }
        ("POST", ["interactions", interaction, token, "callback"]) => {
            route("answerInteraction", None, id(interaction), token)
        }
        ("GET", ["guilds", guild, "members", user]) => route("getMember", None, id(guild), user),
        ("GET", ["applications", application, "commands"]) => route("getCommands", None, id(application), ""),
        ("PUT", ["applications", application, "commands"]) => route("putCommands", None, id(application), ""),
        _unknown => route(&format!("{method} /{}", parts.join("/")), None, 0, ""),
    }
}

type Done = Result<(Value, Option<Change>), Refusal>;

pub(crate) fn apply(world: &mut World, route: &Route, asked: &Asked) -> Done {
    let channel = route.channel.unwrap_or_default();
    match route.name.as_str() {
        "getGateway" => Ok((gateway(world), None)),
        "getMe" => Ok((person(BOT_ID, true), None)),
        "getApplication" => {
            let flags: u64 = if world.manner.refuses == Some(4014) { 0 } else { 1 << 19 };
            Ok((json!({ "id": APPLICATION_ID.to_string(), "name": "petasos", "flags": flags }), None))
        }
        "getGuilds" => Ok((guilds(world), None)),
        "getGuildChannels" => guild_channels(world, route.message),
        "getActiveThreads" => active_threads(world, route.message),
        "getChannel" => Ok((known(world, channel)?.wire(), None)),
        "getMessages" => messages(world, channel, asked),
        "createMessage" => create(world, channel, &asked.body, &asked.files),
        "editMessage" => edit(world, channel, route.message, &asked.body),
        "deleteMessage" => delete(world, channel, route.message),
        "typing" => known(world, channel).map(|_| (Value::Null, Some(Change::Typing { channel }))),
        "startThread" => start_thread(world, channel, route.message, &asked.body),
        "createThread" => create_thread(world, channel, asked),
        "react" => react(world, channel, route),
        "unreact" => unreact(world, channel, route),
        "answerInteraction" => answer(world, route, &asked.body),
        "getMember" => member(world, route),
        "getCommands" => get_commands(world, route.message),
        "putCommands" => put_commands(world, route.message, &asked.body),
        _unknown => Err(Refusal::not_found()),
    }
}

fn gateway(world: &World) -> Value {
    let remaining = world.starts_left.unwrap_or(1000);
    json!({
        "url": format!("ws://{}/gateway", world.address), "shards": 1,
        "session_start_limit":
            { "total": 1000, "remaining": remaining, "reset_after": 14_400_000, "max_concurrency": 1 },
    })
}

fn guilds(world: &World) -> Value {
    world.guilds.iter().map(|id| json!({ "id": id.to_string(), "name": format!("guild{id}") })).collect()
}

/// Without threads, as the real service does.
fn guild_channels(world: &World, guild: u64) -> Done {
    if !world.guilds.contains(&guild) {
        return Err(Refusal::new(404, 10004, "Unknown Guild"));
    }
    let within = world.channels.values().filter(|it| it.guild == Some(guild) && !it.is_thread());
    Ok((within.map(Channel::wire).collect(), None))
}

fn active_threads(world: &World, guild: u64) -> Done {
    let within = world.channels.values().filter(|it| it.guild == Some(guild) && it.is_thread());
    let threads: Vec<Value> = within.map(Channel::wire).collect();
    Ok((json!({ "threads": threads }), None))
}

fn known(world: &World, channel: u64) -> Result<&Channel, Refusal> {
    world.channels.get(&channel).ok_or_else(Refusal::unknown_channel)
}

/// Newest first, as the real service does; `after` and `limit` are kept.
fn messages(world: &World, channel: u64, asked: &Asked) -> Done {
    let number = |key: &str| asked.query.get(key).and_then(|value| value.parse::<u64>().ok());
    let limit = number("limit").unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return Err(Refusal::form("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100."));
    }
    let limit = usize::try_from(limit).unwrap_or(100);
    let found = &known(world, channel)?.messages;
    let mut page: Vec<&Message> = match number("after") {
        Some(after) => found.range(after + 1..).map(|(_, message)| message).take(limit).collect(),
        None => found.values().rev().take(limit).collect(),
    };
    page.sort_by_key(|message| std::cmp::Reverse(message.id));
    Ok((page.into_iter().map(|message| message.wire.clone()).collect(), None))
}

fn create(world: &mut World, channel: u64, body: &Value, files: &[Upload]) -> Done {
    if known(world, channel)?.kind == FORUM {
        return Err(Refusal::new(400, 50008, "Cannot send messages in a non-text channel"));
    }
    let nonce = nonce(body)?;
    if let Some(known) = nonce.as_ref().filter(|_| body["enforce_nonce"] == true) {
        let copy = world.nonces.get(&(channel, known.clone()));
        if let Some(copy) = copy.and_then(|id| world.channels.get(&channel)?.messages.get(id)) {
            return Ok((copy.wire.clone(), None));
        }
    }
    if files.iter().any(|file| file.content.len() > LARGEST_FILE) {
        return Err(Refusal::new(413, 40005, "Request entity too large"));
    }
    let content = content(body, !files.is_empty())?;
    let reply_to = reply_target(world, channel, body)?;
    check_components(&body["components"])?;
    let id = world.next_id();
    if let Some(nonce) = &nonce {
        world.nonces.insert((channel, nonce.clone()), id);
    }
    let wire = json!({
        "id": id.to_string(), "channel_id": channel.to_string(), "type": if reply_to.is_some() { 19 } else { 0 },
        "author": person(BOT_ID, true), "content": content, "nonce": nonce, "mentions": [],
        "attachments": [], "timestamp": "2026-11-16T00:00:00.000000+00:00", "components": body["components"],
    });
    let message = Message {
        id,
        channel,
        content,
        from_bot: true,
        reply_to,
        components: body["components"].clone(),
        allowed_mentions: body["allowed_mentions"].clone(),
        nonce,
        flags: body["flags"].as_u64().unwrap_or_default(),
        edits: 0,
        files: files.to_vec(),
        wire: wire.clone(),
    };
    world.publish("MESSAGE_CREATE", message.clone());
    Ok((wire, Some(Change::Sent(message))))
}

fn edit(world: &mut World, channel: u64, id: u64, body: &Value) -> Done {
    let content = content(body, false)?;
    known(world, channel)?;
    let message = world.channel_mut(channel).messages.get_mut(&id).ok_or_else(Refusal::unknown_message)?;
    if !message.from_bot {
        return Err(Refusal::new(403, 50005, "Cannot edit a message authored by another user"));
    }
    message.wire["content"] = content.as_str().into();
    (message.content, message.edits) = (content, message.edits + 1);
    message.allowed_mentions = body["allowed_mentions"].clone();
    if let Some(components) = body.get("components") {
        message.components = components.clone();
    }
    let message = message.clone();
    Ok((message.wire.clone(), Some(Change::Edited(message))))
}

fn delete(world: &mut World, channel: u64, id: u64) -> Done {
    known(world, channel)?;
    world.channel_mut(channel).messages.remove(&id).ok_or_else(Refusal::unknown_message)?;
    Ok((Value::Null, Some(Change::Deleted { channel, id })))
}

/// A thread that grows from a message has the message's number.
fn start_thread(world: &mut World, channel: u64, message: u64, body: &Value) -> Done {
    let parent = known(world, channel)?.clone();
    if !parent.messages.contains_key(&message) {
        return Err(Refusal::unknown_message());
    }
    if world.channels.contains_key(&message) {
        return Err(Refusal::new(400, 160_004, "A thread has already been created for this message"));
    }
    let thread = thread(&parent, message, body)?;
    Ok((open(world, thread), None))
}

fn create_thread(world: &mut World, channel: u64, asked: &Asked) -> Done {
    let parent = known(world, channel)?.clone();
    let id = world.next_id();
    let thread = thread(&parent, id, &asked.body)?;
    let mut wire = open(world, thread);
    if parent.kind != FORUM {
        return Ok((wire, None));
    }
    let (message, change) = create(world, id, &asked.body["message"], &asked.files)?;
    wire["message"] = message;
    Ok((wire, change))
}

fn thread(parent: &Channel, id: u64, body: &Value) -> Result<Channel, Refusal> {
    let name = body["name"].as_str().unwrap_or_default();
    if name.is_empty() || name.chars().count() > 100 {
        return Err(Refusal::form("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."));
    }
    let mut thread = Channel::new(id, THREAD, parent.guild);
    (thread.parent, thread.name) = (Some(parent.id), name.to_owned());
    Ok(thread)
}

fn open(world: &mut World, thread: Channel) -> Value {
    let wire = thread.wire();
    world.channels.insert(thread.id, thread);
    world.sessions.dispatch("THREAD_CREATE", &wire);
    wire
}

fn react(world: &mut World, channel: u64, route: &Route) -> Done {
    if !known(world, channel)?.messages.contains_key(&route.message) {
        return Err(Refusal::unknown_message());
    }
    let (id, emoji) = (route.message, route.word.clone());
    let mark = (channel, id, emoji.clone());
    if !world.reactions.contains(&mark) {
        world.reactions.push(mark);
    }
    Ok((Value::Null, Some(Change::Reacted { channel, id, emoji })))
}

fn unreact(world: &mut World, channel: u64, route: &Route) -> Done {
    if !known(world, channel)?.messages.contains_key(&route.message) {
        return Err(Refusal::unknown_message());
    }
    world.reactions.retain(|(_, id, emoji)| (*id, emoji.as_str()) != (route.message, &route.word));
    Ok((Value::Null, None))
}

fn answer(world: &mut World, route: &Route, body: &Value) -> Done {
    match world.interactions.get_mut(&route.message) {
        Some((token, answered)) if *token == route.word => {
            if std::mem::replace(answered, true) {
                return Err(Refusal::new(400, 40060, "Interaction has already been acknowledged."));
            }
            let change = Change::Answered { interaction: route.message, answer: body.clone() };
            Ok((Value::Null, Some(change)))
        }
        Some(_) | None => Err(Refusal::new(404, 10062, "Unknown interaction")),
    }
}

fn member(world: &World, route: &Route) -> Done {
    if !world.guilds.contains(&route.message) {
        return Err(Refusal::new(404, 10004, "Unknown Guild"));
    }
    let user = route.word.parse().map_err(|_| Refusal::new(404, 10013, "Unknown User"))?;
    Ok((json!({ "user": person(user, false), "roles": world.roles(user) }), None))
}

/// As the real service tells them: with what it added, and without what is only a default.
fn get_commands(world: &World, application: u64) -> Done {
    if application != APPLICATION_ID {
        return Err(Refusal::new(404, 10002, "Unknown Application"));
    }
    let told = |(nth, command): (usize, &Value)| {
        let mut command = command.clone();
        command["id"] = (nth + 1).to_string().into();
        command["application_id"] = APPLICATION_ID.to_string().into();
        command["version"] = "1".into();
        command["nsfw"] = false.into();
        for option in command["options"].as_array_mut().into_iter().flatten() {
            if option["required"] == false {
                option.as_object_mut().map(|fields| fields.remove("required"));
            }
        }
        command
    };
    let list = world.commands.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok((list.iter().enumerate().map(told).collect(), None))
}

fn put_commands(world: &mut World, application: u64, body: &Value) -> Done {
    if application != APPLICATION_ID {
        return Err(Refusal::new(404, 10002, "Unknown Application"));
    }
    let list = body.as_array().ok_or_else(|| Refusal::new(400, 50035, "Invalid Form Body"))?;
    for command in list {
        let name = command["name"].as_str().unwrap_or_default();
        let fits = |c: char| c.is_lowercase() || c.is_numeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.chars().count() > 32 || !name.chars().all(fits) {
            return Err(Refusal::form("name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid"));
        }
        let described = command["description"].as_str().unwrap_or_default().chars().count();
        if !(1..=100).contains(&described) {
            return Err(Refusal::form("description", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100."));
        }
    }
    world.commands = body.clone();
    Ok((body.clone(), None))
}

/// `optional`: there is something else to be seen.
fn content(body: &Value, optional: bool) -> Result<String, Refusal> {
    let content = body["content"].as_str().unwrap_or_default();
    if content.trim().is_empty() && !optional {
        return Err(Refusal::new(400, 50006, "Cannot send an empty message"));
    }
    if content.chars().count() > LONGEST_TEXT {
        let why = "Must be 2000 or fewer in length.";
        return Err(Refusal::form("content", "BASE_TYPE_MAX_LENGTH", why));
    }
    Ok(content.to_owned())
}

fn nonce(body: &Value) -> Result<Option<String>, Refusal> {
    let nonce = match &body["nonce"] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if nonce.chars().count() > LONGEST_NONCE {
        return Err(Refusal::form("nonce", "NONCE_TYPE_TOO_LONG", "Must be 25 or fewer in length."));
    }
    Ok(Some(nonce))
}

/// `None`: no reply, or its target is gone and the bot does not mind.
fn reply_target(world: &World, channel: u64, body: &Value) -> Result<Option<u64>, Refusal> {
    let reference = &body["message_reference"];
    let Some(id) = reference["message_id"].as_str().and_then(|id| id.parse::<u64>().ok()) else {
        return Ok(None);
    };
    let kind = known(world, channel)?.messages.get(&id).map(|message| message.wire["type"].as_u64());
    match kind {
        Some(Some(0 | 19 | 20 | 21) | None) => Ok(Some(id)),
        Some(Some(_system)) => {
            let why = "Cannot reply to a system message";
            Err(Refusal::form("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", why))
        }
        None if reference["fail_if_not_exists"] == false => Ok(None),
        None => Err(Refusal::form("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")),
    }
}

fn check_components(components: &Value) -> Result<(), Refusal> {
    let rows = components.as_array().map(Vec::as_slice).unwrap_or_default();
    let bad = |why: &str| Err(Refusal::form("components", "BASE_TYPE_BAD_LENGTH", why));
    if rows.len() > 5 {
        return bad("Must be 5 or fewer in length.");
    }
    let mut names = std::collections::HashSet::new();
    for row in rows {
        let buttons = row["components"].as_array().map(Vec::as_slice).unwrap_or_default();
        if row["type"] != 1 || buttons.is_empty() || buttons.len() > 5 {
            return bad("Must be between 1 and 5 in length.");
        }
        for button in buttons {
            let (name, label) = (button["custom_id"].as_str(), button["label"].as_str().unwrap_or_default());
            let name = name.unwrap_or_default();
            if name.is_empty() || name.chars().count() > 100 || label.chars().count() > 80 {
                return bad("A button's custom_id or label is too long or missing.");
            }
            if !names.insert(name) {
                return Err(Refusal::form(
                    "components",
                    "COMPONENT_CUSTOM_ID_DUPLICATED",
                    "Component custom id cannot be duplicated",
                ));
            }
        }
    }
    Ok(())
}
