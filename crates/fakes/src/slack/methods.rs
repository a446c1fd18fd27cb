//! The methods of the Web API, each a function of the state and the parameters.

use serde_json::{Value, json};

use super::channel::{SlackChannel, SlackMessage};
use super::error::{MethodResult, ServiceError};
use super::params::Params;
use super::state::{PendingUpload, State, VisibleChange, Workspace};
use crate::server::files::Upload;

const LONGEST_TEXT: usize = 40_000;
const LONGEST_EDIT: usize = 4_000;
const LONGEST_SECTION: usize = 3_000;

/// Whether the method accepts JSON; the others read only forms and queries.
pub(crate) fn accepts_json(method: &str) -> bool {
    matches!(
        method,
        "chat.postMessage"
            | "chat.update"
            | "chat.delete"
            | "chat.postEphemeral"
            | "conversations.open"
            | "assistant.threads.setStatus"
            | "reactions.add"
            | "reactions.remove"
            | "files.completeUploadExternal"
            | "auth.test"
    )
}

type Applied = Result<(Value, Option<VisibleChange>), ServiceError>;

pub(crate) fn apply(
    state: &mut State,
    method: &str,
    token: &str,
    params: &Params,
) -> (MethodResult, Option<VisibleChange>) {
    match dispatch(state, method, token, params) {
        Ok((mut answer, change)) => {
            answer["ok"] = true.into();
            (Ok(answer), change)
        }
        Err(error) => (Err(error), None),
    }
}

fn dispatch(state: &mut State, method: &str, token: &str, params: &Params) -> Applied {
    if token.is_empty() {
        return Err(ServiceError::new("not_authed"));
    }
    if method == "apps.connections.open" {
        return open(state, token);
    }
    let by = |workspace: &&Workspace| workspace.token == token;
    let Some(workspace) = state.workspaces.iter().find(by).cloned() else {
        let wrong = if token.starts_with("xapp-") { "not_allowed_token_type" } else { "invalid_auth" };
        return Err(ServiceError::new(wrong));
    };
    match method {
        "auth.test" => Ok((identity(&workspace), None)),
        "chat.postMessage" => post(state, &workspace, params),
        "chat.update" => update(state, &workspace, params),
        "chat.delete" => delete(state, &workspace, params),
        "conversations.info" => info(state, &workspace, params),
        "conversations.open" => open_conversation(state, &workspace, params),
        "conversations.replies" => replies(state, &workspace, params),
        "conversations.history" => history(state, &workspace, params),
        "users.info" => user(state, params),
        "users.conversations" => conversations(state, &workspace, params),
        "assistant.threads.setStatus" => status(state, &workspace, params),
        "reactions.add" => react(state, &workspace, params, true),
        "reactions.remove" => react(state, &workspace, params, false),
        "files.getUploadURLExternal" => request_upload(state, params),
        "files.completeUploadExternal" => share(state, &workspace, params),
        _unknown => Err(ServiceError::new("unknown_method")),
    }
}

fn open(state: &State, token: &str) -> Applied {
    if !token.starts_with("xapp-") {
        return Err(ServiceError::new("not_allowed_token_type"));
    }
    if state.app_token.as_deref().is_some_and(|expected| expected != token) {
        return Err(ServiceError::new("invalid_auth"));
    }
    let url = format!("{}/link?ticket={}", state.origin.replacen("http", "ws", 1), state.calls.next());
    Ok((json!({ "url": url }), None))
}

fn identity(workspace: &Workspace) -> Value {
    json!({
        "url": "https://acme.slack.com/", "team": format!("Team {}", workspace.team), "user": "petasos",
        "team_id": workspace.team, "user_id": workspace.bot_user, "bot_id": workspace.bot_id,
    })
}

fn post(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let ts = state.next_ts();
    let target = find_channel(state, workspace, params)?;
    let message = SlackMessage {
        channel: params.channel().unwrap_or_default().to_owned(),
        ts,
        text: text(params, LONGEST_TEXT)?,
        thread: params.str("thread_ts").map(str::to_owned),
        broadcast: params.flag("reply_broadcast"),
        blocks: blocks(params)?,
        edits: 0,
        files: Vec::new(),
    };
    target.messages.push(message.clone());
    // A message of the bot clears its status.
    if let Some(thread) = &message.thread {
        target.statuses.retain(|(of, _)| of != thread);
    }
    let json = message.to_json(&workspace.bot_user);
    let answer = json!({ "channel": message.channel, "ts": message.ts, "message": json });
    Ok((answer, Some(VisibleChange::Sent(message))))
}

fn request_upload(state: &mut State, params: &Params) -> Applied {
    let name = params.str("filename").ok_or_else(|| ServiceError::new("invalid_arguments"))?.to_owned();
    let length = params.str("length").and_then(|length| length.parse().ok()).filter(|length| *length > 0);
    let length = length.ok_or_else(|| ServiceError::new("invalid_arguments"))?;
    let id = format!("F{}", state.uploads.len() + 1);
    let url = format!("{}/upload/v1/{id}", state.origin);
    state.uploads.insert(id.clone(), PendingUpload { name, length, content: None });
    Ok((json!({ "upload_url": url, "file_id": id }), None))
}

/// Shares the uploads in a message. Like the real service, does not return its timestamp.
fn share(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let ts = state.next_ts();
    let listed = params.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut files = Vec::new();
    for file in listed {
        let pending = file["id"].as_str().and_then(|id| state.uploads.get(id));
        let content = pending.and_then(|pending| Some((pending.name.clone(), pending.content.clone()?)));
        let (name, content) = content.ok_or_else(|| ServiceError::new("file_not_found"))?;
        files.push(Upload { field: String::new(), name, mime: String::new(), content });
    }
    let message = SlackMessage {
        channel: params.channel().unwrap_or_default().to_owned(),
        ts,
        text: params.str("initial_comment").unwrap_or_default().to_owned(),
        thread: params.str("thread_ts").map(str::to_owned),
        broadcast: false,
        blocks: None,
        edits: 0,
        files,
    };
    find_channel(state, workspace, params)?.messages.push(message.clone());
    Ok((json!({ "files": listed }), Some(VisibleChange::Sent(message))))
}

fn update(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let text = text(params, LONGEST_EDIT)?;
    let blocks = blocks(params)?;
    let target = find_channel(state, workspace, params)?;
    let message = target.find_mut(params.str("ts").unwrap_or_default())?;
    message.text = text;
    if blocks.is_some() {
        message.blocks = blocks;
    }
    message.edits += 1;
    let answer = json!({ "channel": message.channel, "ts": message.ts, "text": message.text });
    let message = message.clone();
    Ok((answer, Some(VisibleChange::Edited(message))))
}

fn delete(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let ts = params.str("ts").unwrap_or_default().to_owned();
    find_channel(state, workspace, params)?.delete(&ts)?;
    let channel = params.channel().unwrap_or_default().to_owned();
    Ok((json!({ "channel": channel, "ts": ts }), Some(VisibleChange::Deleted { channel, ts })))
}

fn info(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let archived = find_channel(state, workspace, params)?.archived;
    let id = params.channel().unwrap_or_default();
    let im = id.starts_with('D');
    let channel =
        json!({ "id": id, "name": "general", "is_im": im, "is_channel": !im, "is_archived": archived });
    Ok((json!({ "channel": channel }), None))
}

fn open_conversation(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let user = params.str("users").ok_or_else(|| ServiceError::new("users_list_not_supplied"))?;
    let id = format!("D{}", user.trim_start_matches(['U', 'W']));
    state.add_channel(&workspace.team, &id);
    Ok((json!({ "channel": { "id": id } }), None))
}

/// A thread, oldest first; always includes its first message.
fn replies(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let root = params.str("ts").ok_or_else(|| ServiceError::new("thread_not_found"))?.to_owned();
    let oldest = params.str("oldest").unwrap_or_default().to_owned();
    let mut all = all_messages(state, workspace, params)?;
    let later = |it: &Value| it["ts"].as_str().unwrap_or_default() > oldest.as_str();
    all.retain(|it| it["ts"] == *root || (it["thread_ts"] == *root && later(it)));
    page(all, params)
}

/// The channel itself, newest first, between `oldest` and `latest`.
fn history(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let oldest = params.str("oldest").unwrap_or_default().to_owned();
    let latest = params.str("latest").map(str::to_owned);
    let mut all = all_messages(state, workspace, params)?;
    all.retain(|it| {
        let in_channel = it["thread_ts"].is_null() || it["thread_ts"] == it["ts"];
        let ts = it["ts"].as_str().unwrap_or_default();
        in_channel && ts > oldest.as_str() && latest.as_deref().is_none_or(|latest| ts < latest)
    });
    all.reverse();
    page(all, params)
}

/// All messages, oldest first, without their channel as in the real history.
fn all_messages(
    state: &mut State,
    workspace: &Workspace,
    params: &Params,
) -> Result<Vec<Value>, ServiceError> {
    let target = find_channel(state, workspace, params)?;
    let incoming = target.incoming.iter().cloned();
    let own = target.messages.iter().map(|message| message.to_json(&workspace.bot_user));
    let mut all: Vec<Value> = incoming.chain(own).collect();
    for message in &mut all {
        let fields = message.as_object_mut();
        fields.map(|fields| ["channel", "channel_type"].map(|name| fields.remove(name)));
    }
    all.sort_by(|a, b| a["ts"].as_str().cmp(&b["ts"].as_str()));
    Ok(all)
}

fn page(all: Vec<Value>, params: &Params) -> Applied {
    let number = |name: &str| params.str(name).and_then(|text| text.parse::<usize>().ok());
    let from = number("cursor").unwrap_or(0);
    let most = number("limit").unwrap_or(100);
    let next = if all.len() > from + most { (from + most).to_string() } else { String::new() };
    let messages: Vec<Value> = all.into_iter().skip(from).take(most).collect();
    let more = !next.is_empty();
    let answer =
        json!({ "messages": messages, "has_more": more, "response_metadata": { "next_cursor": next } });
    Ok((answer, None))
}

fn user(state: &State, params: &Params) -> Applied {
    let id = params.str("user").unwrap_or_default();
    let name = state.users.get(id).ok_or_else(|| ServiceError::new("user_not_found"))?;
    let profile = json!({ "display_name": name, "real_name": name });
    Ok((json!({ "user": { "id": id, "name": "login", "real_name": name, "profile": profile } }), None))
}

/// Sorted by id, in pages.
fn conversations(state: &State, workspace: &Workspace, params: &Params) -> Applied {
    let limit: usize = params.str("limit").and_then(|it| it.parse().ok()).unwrap_or(100);
    if !(1..=999).contains(&limit) {
        return Err(ServiceError::new("invalid_limit"));
    }
    let from: usize = match params.str("cursor") {
        Some(cursor) => cursor.parse().map_err(|_| ServiceError::new("invalid_cursor"))?,
        None => 0,
    };
    let wanted = |kind: &str| params.str("types").unwrap_or("public_channel").split(',').any(|it| it == kind);
    let mut ids: Vec<&String> = state
        .channels
        .iter()
        .filter(|(_, channel)| channel.team == workspace.team)
        .filter(|(_, channel)| !(channel.archived && params.flag("exclude_archived")))
        .filter(|(id, _)| match id.chars().next() {
            Some('D') => wanted("im"),
            Some('G') => wanted("private_channel"),
            _ => wanted("public_channel"),
        })
        .map(|(id, _)| id)
        .collect();
    ids.sort();
    let page: Vec<Value> = ids.iter().skip(from).take(limit).map(|id| listed(state, id)).collect();
    let next = from + page.len();
    let cursor = if next < ids.len() { next.to_string() } else { String::new() };
    Ok((json!({ "channels": page, "response_metadata": { "next_cursor": cursor } }), None))
}

fn listed(state: &State, id: &str) -> Value {
    let named = state.names.get(id).cloned().unwrap_or_else(|| id.to_lowercase());
    json!({ "id": id, "name": named, "is_private": id.starts_with('G'), "is_im": id.starts_with('D') })
}

fn status(state: &mut State, workspace: &Workspace, params: &Params) -> Applied {
    let thread = params.str("thread_ts").ok_or_else(|| ServiceError::new("invalid_thread_ts"))?.to_owned();
    let status =
        params.get("status").and_then(Value::as_str).ok_or_else(|| ServiceError::new("invalid_arguments"))?;
    let target = find_channel(state, workspace, params)?;
    target.statuses.push((thread.clone(), status.to_owned()));
    let channel = params.channel().unwrap_or_default().to_owned();
    Ok((json!({}), Some(VisibleChange::Status { channel, thread, status: status.to_owned() })))
}

fn react(state: &mut State, workspace: &Workspace, params: &Params, add: bool) -> Applied {
    let field = |name: &str| params.str(name).unwrap_or_default().to_owned();
    let ts = field("timestamp");
    let name = field("name");
    let target = find_channel(state, workspace, params)?;
    let is_incoming = target.incoming.iter().any(|it| it["ts"] == *ts);
    if !is_incoming && target.find_mut(&ts).is_err() {
        return Err(ServiceError::new("message_not_found"));
    }
    let there = target.reactions.iter().position(|known| *known == (ts.clone(), name.clone()));
    match (there, add) {
        (Some(_), true) => return Err(ServiceError::new("already_reacted")),
        (None, false) => return Err(ServiceError::new("no_reaction")),
        (None, true) => target.reactions.push((ts, name)),
        (Some(at), false) => drop(target.reactions.remove(at)),
    }
    Ok((json!({}), None))
}

/// The channel, if it belongs to this workspace.
fn find_channel<'a>(
    state: &'a mut State,
    workspace: &Workspace,
    params: &Params,
) -> Result<&'a mut SlackChannel, ServiceError> {
    let id = params.channel().ok_or_else(|| ServiceError::new("channel_not_found"))?;
    let found = state.channels.get_mut(id).filter(|channel| channel.team == workspace.team);
    let found = found.ok_or_else(|| ServiceError::new("channel_not_found"))?;
    if found.archived {
        return Err(ServiceError::new("is_archived"));
    }
    Ok(found)
}

fn text(params: &Params, longest: usize) -> Result<String, ServiceError> {
    let text = params.str("text").unwrap_or_default();
    if text.is_empty() && params.get("blocks").is_none() {
        return Err(ServiceError::new("no_text"));
    }
    if text.chars().count() > longest {
        return Err(ServiceError::new("msg_too_long"));
    }
    Ok(text.to_owned())
}

fn blocks(params: &Params) -> Result<Option<Value>, ServiceError> {
    let Some(blocks) = params.get("blocks") else { return Ok(None) };
    let invalid = || ServiceError::new("invalid_blocks");
    let list = blocks.as_array().filter(|list| list.len() <= 50).ok_or_else(invalid)?;
    for block in list {
        let section = block["text"]["text"].as_str().map_or(0, |text| text.chars().count());
        let elements = block["elements"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut ids: Vec<&str> = elements.iter().filter_map(|it| it["action_id"].as_str()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        let fits = |element: &Value| {
            let chars = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
            (1..=75).contains(&chars(&element["text"]["text"])) && chars(&element["value"]) <= 2000
        };
        let sound = section <= LONGEST_SECTION
            && elements.len() <= 25
            && ids.len() == count
            && elements.iter().all(fits);
        if !sound {
            return Err(invalid());
        }
    }
    Ok(Some(blocks.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let mut state = State::default();
        for (team, token) in [("T1", "xoxb-1"), ("T2", "xoxb-2")] {
            state.workspaces.push(Workspace {
                bot_user: "U".into(),
                bot_id: "B".into(),
                team: team.to_owned(),
                token: token.to_owned(),
            });
        }
        state.add_channel("T1", "C1");
        state
    }

    #[track_caller]
    fn check(method: &str, token: &str, params: Value, want: &str) {
        let Value::Object(params) = params else { panic!("an object") };
        let (answer, _) = apply(&mut state(), method, token, &Params(params));
        let got = answer.map_or_else(|error| error.name().to_owned(), |_| "ok".to_owned());
        assert_eq!(got, want, "{method} with {token}");
    }

    #[test]
    fn errors_have_the_names_of_the_real_service() {
        let button = |id: &str| json!({ "type": "button", "action_id": id, "text": { "text": "x" } });
        let row = json!([{ "type": "actions", "elements": [button("a"), button("a")] }]);
        check("chat.postMessage", "xoxb-1", json!({ "channel": "C1", "text": "x" }), "ok");
        check("chat.postMessage", "xoxb-2", json!({ "channel": "C1", "text": "x" }), "channel_not_found");
        check("chat.postMessage", "xoxb-9", json!({ "channel": "C1", "text": "x" }), "invalid_auth");
        check("chat.postMessage", "", json!({}), "not_authed");
        check("chat.postMessage", "xoxb-1", json!({ "channel": "C1" }), "no_text");
        check("chat.postMessage", "xoxb-1", json!({ "channel": "C1", "blocks": row }), "invalid_blocks");
        check("chat.update", "xoxb-1", json!({ "channel": "C1", "text": "x".repeat(4001) }), "msg_too_long");
        check(
            "chat.update",
            "xoxb-1",
            json!({ "channel": "C1", "text": "x", "ts": "1.1" }),
            "message_not_found",
        );
        check("auth.test", "xapp-1", json!({}), "not_allowed_token_type");
        check("apps.connections.open", "xapp-1", json!({}), "ok");
        check("apps.connections.open", "xoxb-1", json!({}), "not_allowed_token_type");
        check("telepathy", "xoxb-1", json!({}), "unknown_method");
    }
}
