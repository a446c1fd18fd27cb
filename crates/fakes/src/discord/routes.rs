//! The routes of the REST API, each a function of the state and the request.

use serde_json::{Value, json};

use super::channel::{DiscordChannel, DiscordMessage, FORUM, THREAD};
use super::error::ServiceError;
use super::http::RestRequest;
use super::incoming::{APPLICATION_ID, BOT_ID, person};
use super::state::{State, VisibleChange};
use crate::server::files::Upload;

const LONGEST_TEXT: usize = 2000;
const LONGEST_NONCE: usize = 25;
const LARGEST_FILE: usize = 10 << 20;

/// A route and the ids in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) channel: Option<u64>,
    message: u64,
    /// A path segment that is no id: an emoji, an interaction token.
    segment: String,
}

/// `path` without `/api/v10`.
pub(crate) fn find(method: &str, path: &str) -> Route {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let id = |text: &str| text.parse::<u64>().unwrap_or_default();
    let route = |name: &str, channel: Option<u64>, message: u64, segment: &str| Route {
        name: name.to_owned(),
        channel,
        message,
        segment: segment.to_owned(),
    };
    let in_channel = |name: &str, channel: &str| route(name, Some(id(channel)), 0, "");
    match (method, parts.as_slice()) {
        ("GET", ["gateway", "bot"]) => route("getGateway", None, 0, ""),
        ("GET", ["users", "@me"]) => route("getMe", None, 0, ""),
        ("GET", ["applications", "@me"]) => route("getApplication", None, 0, ""),
        ("GET", ["users", "@me", "guilds"]) => route("getGuilds", None, 0, ""),
        ("GET", ["guilds", guild, "channels"]) => route("getGuildChannels", None, id(guild), ""),
        ("GET", ["guilds", guild, "threads", "active"]) => route("getActiveThreads", None, id(guild), ""),
        ("GET", ["channels", channel]) => in_channel("getChannel", channel),
        ("GET", ["channels", channel, "messages"]) => in_channel("getMessages", channel),
        ("POST", ["channels", channel, "messages"]) => in_channel("createMessage", channel),
        ("POST", ["channels", channel, "typing"]) => in_channel("typing", channel),
        ("POST", ["channels", channel, "threads"]) => in_channel("createThread", channel),
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

type Applied = Result<(Value, Option<VisibleChange>), ServiceError>;

pub(crate) fn apply(state: &mut State, route: &Route, request: &RestRequest) -> Applied {
    let channel = route.channel.unwrap_or_default();
    match route.name.as_str() {
        "getGateway" => Ok((gateway(state), None)),
        "getMe" => Ok((person(BOT_ID, true), None)),
        "getApplication" => {
            let flags: u64 = if state.behaviour.close_code == Some(4014) { 0 } else { 1 << 19 };
            Ok((json!({ "id": APPLICATION_ID.to_string(), "name": "petasos", "flags": flags }), None))
        }
        "getGuilds" => Ok((guilds(state), None)),
        "getGuildChannels" => guild_channels(state, route.message),
        "getActiveThreads" => active_threads(state, route.message),
        "getChannel" => Ok((find_channel(state, channel)?.to_json(), None)),
        "getMessages" => messages(state, channel, request),
        "createMessage" => create(state, channel, &request.body, &request.files),
        "editMessage" => edit(state, channel, route.message, &request.body),
        "deleteMessage" => delete(state, channel, route.message),
        "typing" => {
            find_channel(state, channel).map(|_| (Value::Null, Some(VisibleChange::Typing { channel })))
        }
        "startThread" => start_thread(state, channel, route.message, &request.body),
        "createThread" => create_thread(state, channel, request),
        "react" => react(state, channel, route),
        "unreact" => unreact(state, channel, route),
        "answerInteraction" => answer_interaction(state, route, &request.body),
        "getMember" => member(state, route),
        "getCommands" => get_commands(state, route.message),
        "putCommands" => put_commands(state, route.message, &request.body),
        _unknown => Err(ServiceError::not_found()),
    }
}

fn gateway(state: &State) -> Value {
    let remaining = state.starts_left.unwrap_or(1000);
    json!({
        "url": format!("ws://{}/gateway", state.address), "shards": 1,
        "session_start_limit":
            { "total": 1000, "remaining": remaining, "reset_after": 14_400_000, "max_concurrency": 1 },
    })
}

fn guilds(state: &State) -> Value {
    state.guilds.iter().map(|id| json!({ "id": id.to_string(), "name": format!("guild{id}") })).collect()
}

/// Without threads, as the real service does.
fn guild_channels(state: &State, guild: u64) -> Applied {
    if !state.guilds.contains(&guild) {
        return Err(ServiceError::new(404, 10004, "Unknown Guild"));
    }
    let within = state.channels.values().filter(|it| it.guild == Some(guild) && !it.is_thread());
    Ok((within.map(DiscordChannel::to_json).collect(), None))
}

fn active_threads(state: &State, guild: u64) -> Applied {
    let within = state.channels.values().filter(|it| it.guild == Some(guild) && it.is_thread());
    let threads: Vec<Value> = within.map(DiscordChannel::to_json).collect();
    Ok((json!({ "threads": threads }), None))
}

fn find_channel(state: &State, channel: u64) -> Result<&DiscordChannel, ServiceError> {
    state.channels.get(&channel).ok_or_else(ServiceError::unknown_channel)
}

/// Newest first, as the real service does. Supports `after` and `limit`.
fn messages(state: &State, channel: u64, request: &RestRequest) -> Applied {
    let number = |key: &str| request.query.get(key).and_then(|value| value.parse::<u64>().ok());
    let limit = number("limit").unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return Err(ServiceError::invalid_field(
            "limit",
            "NUMBER_TYPE_MAX",
            "int value should be between 1 and 100.",
        ));
    }
    let limit = usize::try_from(limit).unwrap_or(100);
    let found = &find_channel(state, channel)?.messages;
    let mut page: Vec<&DiscordMessage> = match number("after") {
        Some(after) => found.range(after + 1..).map(|(_, message)| message).take(limit).collect(),
        None => found.values().rev().take(limit).collect(),
    };
    page.sort_by_key(|message| std::cmp::Reverse(message.id));
    Ok((page.into_iter().map(|message| message.wire.clone()).collect(), None))
}

fn create(state: &mut State, channel: u64, body: &Value, files: &[Upload]) -> Applied {
    if find_channel(state, channel)?.kind == FORUM {
        return Err(ServiceError::new(400, 50008, "Cannot send messages in a non-text channel"));
    }
    let nonce = nonce(body)?;
    if let Some(known) = nonce.as_ref().filter(|_| body["enforce_nonce"] == true) {
        let copy = state.nonces.get(&(channel, known.clone()));
        if let Some(copy) = copy.and_then(|id| state.channels.get(&channel)?.messages.get(id)) {
            return Ok((copy.wire.clone(), None));
        }
    }
    if files.iter().any(|file| file.content.len() > LARGEST_FILE) {
        return Err(ServiceError::new(413, 40005, "Request entity too large"));
    }
    let content = content(body, !files.is_empty())?;
    let reply_to = reply_target(state, channel, body)?;
    check_components(&body["components"])?;
    let id = state.next_id();
    if let Some(nonce) = &nonce {
        state.nonces.insert((channel, nonce.clone()), id);
    }
    let wire = json!({
        "id": id.to_string(), "channel_id": channel.to_string(), "type": if reply_to.is_some() { 19 } else { 0 },
        "author": person(BOT_ID, true), "content": content, "nonce": nonce, "mentions": [],
        "attachments": [], "timestamp": "2026-11-16T00:00:00.000000+00:00", "components": body["components"],
    });
    let message = DiscordMessage {
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
    state.publish("MESSAGE_CREATE", message.clone());
    Ok((wire, Some(VisibleChange::Sent(message))))
}

fn edit(state: &mut State, channel: u64, id: u64, body: &Value) -> Applied {
    let content = content(body, false)?;
    find_channel(state, channel)?;
    let message =
        state.channel_mut(channel).messages.get_mut(&id).ok_or_else(ServiceError::unknown_message)?;
    if !message.from_bot {
        return Err(ServiceError::new(403, 50005, "Cannot edit a message authored by another user"));
    }
    message.wire["content"] = content.as_str().into();
    message.content = content;
    message.edits += 1;
    message.allowed_mentions = body["allowed_mentions"].clone();
    if let Some(components) = body.get("components") {
        message.components = components.clone();
    }
    let message = message.clone();
    Ok((message.wire.clone(), Some(VisibleChange::Edited(message))))
}

fn delete(state: &mut State, channel: u64, id: u64) -> Applied {
    find_channel(state, channel)?;
    state.channel_mut(channel).messages.remove(&id).ok_or_else(ServiceError::unknown_message)?;
    Ok((Value::Null, Some(VisibleChange::Deleted { channel, id })))
}

/// A thread of a message has the id of the message.
fn start_thread(state: &mut State, channel: u64, message: u64, body: &Value) -> Applied {
    let parent = find_channel(state, channel)?.clone();
    if !parent.messages.contains_key(&message) {
        return Err(ServiceError::unknown_message());
    }
    if state.channels.contains_key(&message) {
        return Err(ServiceError::new(400, 160_004, "A thread has already been created for this message"));
    }
    let thread = thread(&parent, message, body)?;
    Ok((open(state, thread), None))
}

fn create_thread(state: &mut State, channel: u64, request: &RestRequest) -> Applied {
    let parent = find_channel(state, channel)?.clone();
    let id = state.next_id();
    let thread = thread(&parent, id, &request.body)?;
    let mut wire = open(state, thread);
    if parent.kind != FORUM {
        return Ok((wire, None));
    }
    let (message, change) = create(state, id, &request.body["message"], &request.files)?;
    wire["message"] = message;
    Ok((wire, change))
}

fn thread(parent: &DiscordChannel, id: u64, body: &Value) -> Result<DiscordChannel, ServiceError> {
    let name = body["name"].as_str().unwrap_or_default();
    if name.is_empty() || name.chars().count() > 100 {
        return Err(ServiceError::invalid_field(
            "name",
            "BASE_TYPE_BAD_LENGTH",
            "Must be between 1 and 100 in length.",
        ));
    }
    let mut thread = DiscordChannel::new(id, THREAD, parent.guild);
    thread.parent = Some(parent.id);
    thread.name = name.to_owned();
    Ok(thread)
}

fn open(state: &mut State, thread: DiscordChannel) -> Value {
    let wire = thread.to_json();
    state.channels.insert(thread.id, thread);
    state.sessions.dispatch("THREAD_CREATE", &wire);
    wire
}

fn react(state: &mut State, channel: u64, route: &Route) -> Applied {
    if !find_channel(state, channel)?.messages.contains_key(&route.message) {
        return Err(ServiceError::unknown_message());
    }
    let id = route.message;
    let emoji = route.segment.clone();
    let reaction = (channel, id, emoji.clone());
    if !state.reactions.contains(&reaction) {
        state.reactions.push(reaction);
    }
    Ok((Value::Null, Some(VisibleChange::Reacted { channel, id, emoji })))
}

fn unreact(state: &mut State, channel: u64, route: &Route) -> Applied {
    if !find_channel(state, channel)?.messages.contains_key(&route.message) {
        return Err(ServiceError::unknown_message());
    }
    state.reactions.retain(|(_, id, emoji)| (*id, emoji.as_str()) != (route.message, &route.segment));
    Ok((Value::Null, None))
}

fn answer_interaction(state: &mut State, route: &Route, body: &Value) -> Applied {
    match state.interactions.get_mut(&route.message) {
        Some((token, answered)) if *token == route.segment => {
            if std::mem::replace(answered, true) {
                return Err(ServiceError::new(400, 40060, "Interaction has already been acknowledged."));
            }
            let change = VisibleChange::Answered { interaction: route.message, answer: body.clone() };
            Ok((Value::Null, Some(change)))
        }
        Some(_) | None => Err(ServiceError::new(404, 10062, "Unknown interaction")),
    }
}

fn member(state: &State, route: &Route) -> Applied {
    if !state.guilds.contains(&route.message) {
        return Err(ServiceError::new(404, 10004, "Unknown Guild"));
    }
    let user = route.segment.parse().map_err(|_| ServiceError::new(404, 10013, "Unknown User"))?;
    Ok((json!({ "user": person(user, false), "roles": state.roles(user) }), None))
}

/// Like the real service, adds its own fields and omits defaults.
fn get_commands(state: &State, application: u64) -> Applied {
    if application != APPLICATION_ID {
        return Err(ServiceError::new(404, 10002, "Unknown Application"));
    }
    let registered = |(nth, command): (usize, &Value)| {
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
    let list = state.commands.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok((list.iter().enumerate().map(registered).collect(), None))
}

fn put_commands(state: &mut State, application: u64, body: &Value) -> Applied {
    if application != APPLICATION_ID {
        return Err(ServiceError::new(404, 10002, "Unknown Application"));
    }
    let list = body.as_array().ok_or_else(|| ServiceError::new(400, 50035, "Invalid Form Body"))?;
    for command in list {
        let name = command["name"].as_str().unwrap_or_default();
        let fits = |c: char| c.is_lowercase() || c.is_numeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.chars().count() > 32 || !name.chars().all(fits) {
            return Err(ServiceError::invalid_field(
                "name",
                "APPLICATION_COMMAND_INVALID_NAME",
                "Command name is invalid",
            ));
        }
        let described = command["description"].as_str().unwrap_or_default().chars().count();
        if !(1..=100).contains(&described) {
            return Err(ServiceError::invalid_field(
                "description",
                "BASE_TYPE_BAD_LENGTH",
                "Must be between 1 and 100.",
            ));
        }
    }
    state.commands = body.clone();
    Ok((body.clone(), None))
}

/// `optional`: the message has files.
fn content(body: &Value, optional: bool) -> Result<String, ServiceError> {
    let content = body["content"].as_str().unwrap_or_default();
    if content.trim().is_empty() && !optional {
        return Err(ServiceError::new(400, 50006, "Cannot send an empty message"));
    }
    if content.chars().count() > LONGEST_TEXT {
        let why = "Must be 2000 or fewer in length.";
        return Err(ServiceError::invalid_field("content", "BASE_TYPE_MAX_LENGTH", why));
    }
    Ok(content.to_owned())
}

fn nonce(body: &Value) -> Result<Option<String>, ServiceError> {
    let nonce = match &body["nonce"] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if nonce.chars().count() > LONGEST_NONCE {
        return Err(ServiceError::invalid_field(
            "nonce",
            "NONCE_TYPE_TOO_LONG",
            "Must be 25 or fewer in length.",
        ));
    }
    Ok(Some(nonce))
}

/// `None`: not a reply, or its target is gone and the request allows that.
fn reply_target(state: &State, channel: u64, body: &Value) -> Result<Option<u64>, ServiceError> {
    let reference = &body["message_reference"];
    let Some(id) = reference["message_id"].as_str().and_then(|id| id.parse::<u64>().ok()) else {
        return Ok(None);
    };
    let kind = find_channel(state, channel)?.messages.get(&id).map(|message| message.wire["type"].as_u64());
    match kind {
        Some(Some(0 | 19 | 20 | 21) | None) => Ok(Some(id)),
        Some(Some(_system)) => {
            let why = "Cannot reply to a system message";
            Err(ServiceError::invalid_field(
                "message_reference",
                "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE",
                why,
            ))
        }
        None if reference["fail_if_not_exists"] == false => Ok(None),
        None => Err(ServiceError::invalid_field(
            "message_reference",
            "REPLIES_UNKNOWN_MESSAGE",
            "Unknown message",
        )),
    }
}

fn check_components(components: &Value) -> Result<(), ServiceError> {
    let rows = components.as_array().map(Vec::as_slice).unwrap_or_default();
    let bad = |why: &str| Err(ServiceError::invalid_field("components", "BASE_TYPE_BAD_LENGTH", why));
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
            let name = button["custom_id"].as_str().unwrap_or_default();
            let label = button["label"].as_str().unwrap_or_default();
            if name.is_empty() || name.chars().count() > 100 || label.chars().count() > 80 {
                return bad("A button's custom_id or label is too long or missing.");
            }
            if !names.insert(name) {
                return Err(ServiceError::invalid_field(
                    "components",
                    "COMPONENT_CUSTOM_ID_DUPLICATED",
                    "Component custom id cannot be duplicated",
                ));
            }
        }
    }
    Ok(())
}
