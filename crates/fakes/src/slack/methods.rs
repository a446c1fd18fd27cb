//! The methods of the Web API, each a function from the world and the parameters to an answer.

use serde_json::{Value, json};

use super::chat::{Channel, Message};
use super::params::Params;
use super::refusal::{Answer, Refusal};
use super::world::{Brought, Change, Workspace, World};
use crate::files::Upload;

const LONGEST_TEXT: usize = 40_000;
const LONGEST_EDIT: usize = 4_000;
const LONGEST_SECTION: usize = 3_000;

/// Methods that take JSON; the others read only forms and queries.
pub(crate) fn takes_json(method: &str) -> bool {
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

type Done = Result<(Value, Option<Change>), Refusal>;

pub(crate) fn apply(
    world: &mut World,
    method: &str,
    token: &str,
    params: &Params,
) -> (Answer, Option<Change>) {
    match called(world, method, token, params) {
        Ok((mut answer, change)) => {
            answer["ok"] = true.into();
            (Ok(answer), change)
        }
        Err(refusal) => (Err(refusal), None),
    }
}

fn called(world: &mut World, method: &str, token: &str, params: &Params) -> Done {
    if token.is_empty() {
        return Err(Refusal::new("not_authed"));
    }
    if method == "apps.connections.open" {
        return open(world, token);
    }
    let by = |workspace: &&Workspace| workspace.token == token;
    let Some(workspace) = world.workspaces.iter().find(by).cloned() else {
        let wrong = if token.starts_with("xapp-") { "not_allowed_token_type" } else { "invalid_auth" };
        return Err(Refusal::new(wrong));
    };
    match method {
        "auth.test" => Ok((who(&workspace), None)),
        "chat.postMessage" => post(world, &workspace, params),
        "chat.update" => update(world, &workspace, params),
        "chat.delete" => delete(world, &workspace, params),
        "conversations.info" => info(world, &workspace, params),
        "conversations.open" => open_conversation(world, &workspace, params),
        "conversations.replies" => replies(world, &workspace, params),
        "conversations.history" => history(world, &workspace, params),
        "users.info" => user(world, params),
        "users.conversations" => conversations(world, &workspace, params),
        "assistant.threads.setStatus" => status(world, &workspace, params),
        "reactions.add" => react(world, &workspace, params, true),
        "reactions.remove" => react(world, &workspace, params, false),
        "files.getUploadURLExternal" => ticket(world, params),
        "files.completeUploadExternal" => share(world, &workspace, params),
        _unknown => Err(Refusal::new("unknown_method")),
    }
}

fn open(world: &World, token: &str) -> Done {
    if !token.starts_with("xapp-") {
        return Err(Refusal::new("not_allowed_token_type"));
    }
    if world.app_token.as_deref().is_some_and(|expected| expected != token) {
        return Err(Refusal::new("invalid_auth"));
    }
    let url = format!("{}/link?ticket={}", world.origin.replacen("http", "ws", 1), world.calls.next());
    Ok((json!({ "url": url }), None))
}

fn who(workspace: &Workspace) -> Value {
    json!({
        "url": "https://acme.slack.com/", "team": format!("Team {}", workspace.team), "user": "petasos",
        "team_id": workspace.team, "user_id": workspace.bot_user, "bot_id": workspace.bot_id,
    })
}

fn post(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let ts = world.tick();
    let place = channel(world, workspace, params)?;
    let message = Message {
        channel: params.channel().unwrap_or_default().to_owned(),
        ts,
        text: text(params, LONGEST_TEXT)?,
        thread: params.str("thread_ts").map(str::to_owned),
        broadcast: params.flag("reply_broadcast"),
        blocks: blocks(params)?,
        edits: 0,
        files: Vec::new(),
    };
    place.messages.push(message.clone());
    // A word of the bot takes its status away.
    if let Some(thread) = &message.thread {
        place.statuses.retain(|(of, _)| of != thread);
    }
    let wire = message.wire(&workspace.bot_user);
    let answer = json!({ "channel": message.channel, "ts": message.ts, "message": wire });
    Ok((answer, Some(Change::Sent(message))))
}

fn ticket(world: &mut World, params: &Params) -> Done {
    let name = params.str("filename").ok_or_else(|| Refusal::new("invalid_arguments"))?.to_owned();
    let length = params.str("length").and_then(|length| length.parse().ok()).filter(|length| *length > 0);
    let length = length.ok_or_else(|| Refusal::new("invalid_arguments"))?;
    let id = format!("F{}", world.uploads.len() + 1);
    let url = format!("{}/upload/v1/{id}", world.origin);
    world.uploads.insert(id.clone(), Brought { name, length, content: None });
    Ok((json!({ "upload_url": url, "file_id": id }), None))
}

/// Shows what was brought. The message is made later and its moment not told, as on the real service.
fn share(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let ts = world.tick();
    let listed = params.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut files = Vec::new();
    for file in listed {
        let brought = file["id"].as_str().and_then(|id| world.uploads.get(id));
        let content = brought.and_then(|brought| Some((brought.name.clone(), brought.content.clone()?)));
        let (name, content) = content.ok_or_else(|| Refusal::new("file_not_found"))?;
        files.push(Upload { field: String::new(), name, mime: String::new(), content });
    }
    let message = Message {
        channel: params.channel().unwrap_or_default().to_owned(),
        ts,
        text: params.str("initial_comment").unwrap_or_default().to_owned(),
        thread: params.str("thread_ts").map(str::to_owned),
        broadcast: false,
        blocks: None,
        edits: 0,
        files,
    };
    channel(world, workspace, params)?.messages.push(message.clone());
    Ok((json!({ "files": listed }), Some(Change::Sent(message))))
}

fn update(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let text = text(params, LONGEST_EDIT)?;
    let blocks = blocks(params)?;
    let place = channel(world, workspace, params)?;
    let message = place.find_mut(params.str("ts").unwrap_or_default())?;
    message.text = text;
    if blocks.is_some() {
        message.blocks = blocks;
    }
    message.edits += 1;
    let answer = json!({ "channel": message.channel, "ts": message.ts, "text": message.text });
    let message = message.clone();
    Ok((answer, Some(Change::Edited(message))))
}

fn delete(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let ts = params.str("ts").unwrap_or_default().to_owned();
    channel(world, workspace, params)?.delete(&ts)?;
    let channel = params.channel().unwrap_or_default().to_owned();
    Ok((json!({ "channel": channel, "ts": ts }), Some(Change::Deleted { channel, ts })))
}

fn info(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let archived = channel(world, workspace, params)?.archived;
    let id = params.channel().unwrap_or_default();
    let im = id.starts_with('D');
    let channel =
        json!({ "id": id, "name": "general", "is_im": im, "is_channel": !im, "is_archived": archived });
    Ok((json!({ "channel": channel }), None))
}

fn open_conversation(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let user = params.str("users").ok_or_else(|| Refusal::new("users_list_not_supplied"))?;
    let id = format!("D{}", user.trim_start_matches(['U', 'W']));
    world.add_channel(&workspace.team, &id);
    Ok((json!({ "channel": { "id": id } }), None))
}

/// A thread, oldest first; its first message comes along whatever `oldest` says.
fn replies(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let root = params.str("ts").ok_or_else(|| Refusal::new("thread_not_found"))?.to_owned();
    let oldest = params.str("oldest").unwrap_or_default().to_owned();
    let mut all = told(world, workspace, params)?;
    let later = |it: &Value| it["ts"].as_str().unwrap_or_default() > oldest.as_str();
    all.retain(|it| it["ts"] == *root || (it["thread_ts"] == *root && later(it)));
    page(all, params)
}

/// The channel itself, newest first, between `oldest` and `latest`.
fn history(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let oldest = params.str("oldest").unwrap_or_default().to_owned();
    let latest = params.str("latest").map(str::to_owned);
    let mut all = told(world, workspace, params)?;
    all.retain(|it| {
        let alone = it["thread_ts"].is_null() || it["thread_ts"] == it["ts"];
        let ts = it["ts"].as_str().unwrap_or_default();
        alone && ts > oldest.as_str() && latest.as_deref().is_none_or(|latest| ts < latest)
    });
    all.reverse();
    page(all, params)
}

/// Everybody's messages, oldest first, as history tells them: without their channel.
fn told(world: &mut World, workspace: &Workspace, params: &Params) -> Result<Vec<Value>, Refusal> {
    let place = channel(world, workspace, params)?;
    let said = place.heard.iter().cloned();
    let own = place.messages.iter().map(|message| message.wire(&workspace.bot_user));
    let mut all: Vec<Value> = said.chain(own).collect();
    for message in &mut all {
        let fields = message.as_object_mut();
        fields.map(|fields| ["channel", "channel_type"].map(|name| fields.remove(name)));
    }
    all.sort_by(|a, b| a["ts"].as_str().cmp(&b["ts"].as_str()));
    Ok(all)
}

fn page(all: Vec<Value>, params: &Params) -> Done {
    let number = |name: &str| params.str(name).and_then(|text| text.parse::<usize>().ok());
    let (from, most) = (number("cursor").unwrap_or(0), number("limit").unwrap_or(100));
    let next = if all.len() > from + most { (from + most).to_string() } else { String::new() };
    let messages: Vec<Value> = all.into_iter().skip(from).take(most).collect();
    let more = !next.is_empty();
    let answer =
        json!({ "messages": messages, "has_more": more, "response_metadata": { "next_cursor": next } });
    Ok((answer, None))
}

fn user(world: &World, params: &Params) -> Done {
    let id = params.str("user").unwrap_or_default();
    let name = world.users.get(id).ok_or_else(|| Refusal::new("user_not_found"))?;
    let profile = json!({ "display_name": name, "real_name": name });
    Ok((json!({ "user": { "id": id, "name": "login", "real_name": name, "profile": profile } }), None))
}

/// By id, in pages; `cursor` is where the next one begins.
fn conversations(world: &World, workspace: &Workspace, params: &Params) -> Done {
    let limit: usize = params.str("limit").and_then(|it| it.parse().ok()).unwrap_or(100);
    if !(1..=999).contains(&limit) {
        return Err(Refusal::new("invalid_limit"));
    }
    let from: usize = match params.str("cursor") {
        Some(cursor) => cursor.parse().map_err(|_| Refusal::new("invalid_cursor"))?,
        None => 0,
    };
    let wanted = |kind: &str| params.str("types").unwrap_or("public_channel").split(',').any(|it| it == kind);
    let mut ids: Vec<&String> = world
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
    let page: Vec<Value> = ids.iter().skip(from).take(limit).map(|id| listed(world, id)).collect();
    let next = from + page.len();
    let cursor = if next < ids.len() { next.to_string() } else { String::new() };
    Ok((json!({ "channels": page, "response_metadata": { "next_cursor": cursor } }), None))
}

fn listed(world: &World, id: &str) -> Value {
    let named = world.names.get(id).cloned().unwrap_or_else(|| id.to_lowercase());
    json!({ "id": id, "name": named, "is_private": id.starts_with('G'), "is_im": id.starts_with('D') })
}

fn status(world: &mut World, workspace: &Workspace, params: &Params) -> Done {
    let thread = params.str("thread_ts").ok_or_else(|| Refusal::new("invalid_thread_ts"))?.to_owned();
    let status =
        params.get("status").and_then(Value::as_str).ok_or_else(|| Refusal::new("invalid_arguments"))?;
    let place = channel(world, workspace, params)?;
    place.statuses.push((thread.clone(), status.to_owned()));
    let channel = params.channel().unwrap_or_default().to_owned();
    Ok((json!({}), Some(Change::Status { channel, thread, status: status.to_owned() })))
}

fn react(world: &mut World, workspace: &Workspace, params: &Params, add: bool) -> Done {
    let of = |name: &str| params.str(name).unwrap_or_default().to_owned();
    let (ts, name) = (of("timestamp"), of("name"));
    let place = channel(world, workspace, params)?;
    let spoken = place.heard.iter().any(|it| it["ts"] == *ts);
    if !spoken && place.find_mut(&ts).is_err() {
        return Err(Refusal::new("message_not_found"));
    }
    let there = place.marks.iter().position(|mark| *mark == (ts.clone(), name.clone()));
    match (there, add) {
        (Some(_), true) => return Err(Refusal::new("already_reacted")),
        (None, false) => return Err(Refusal::new("no_reaction")),
        (None, true) => place.marks.push((ts, name)),
        (Some(at), false) => drop(place.marks.remove(at)),
    }
    Ok((json!({}), None))
}

/// The channel, if this workspace knows it.
fn channel<'a>(
    world: &'a mut World,
    workspace: &Workspace,
    params: &Params,
) -> Result<&'a mut Channel, Refusal> {
    let id = params.channel().ok_or_else(|| Refusal::new("channel_not_found"))?;
    let found = world.channels.get_mut(id).filter(|channel| channel.team == workspace.team);
    let found = found.ok_or_else(|| Refusal::new("channel_not_found"))?;
    if found.archived {
        return Err(Refusal::new("is_archived"));
    }
    Ok(found)
}

fn text(params: &Params, longest: usize) -> Result<String, Refusal> {
    let text = params.str("text").unwrap_or_default();
    if text.is_empty() && params.get("blocks").is_none() {
        return Err(Refusal::new("no_text"));
    }
    if text.chars().count() > longest {
        return Err(Refusal::new("msg_too_long"));
    }
    Ok(text.to_owned())
}

fn blocks(params: &Params) -> Result<Option<Value>, Refusal> {
    let Some(blocks) = params.get("blocks") else { return Ok(None) };
    let invalid = || Refusal::new("invalid_blocks");
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

    fn world() -> World {
        let mut world = World::default();
        for (team, token) in [("T1", "xoxb-1"), ("T2", "xoxb-2")] {
            let (team, token) = (team.to_owned(), token.to_owned());
            world.workspaces.push(Workspace { bot_user: "U".into(), bot_id: "B".into(), team, token });
        }
        world.add_channel("T1", "C1");
        world
    }

    #[track_caller]
    fn check(method: &str, token: &str, params: Value, want: &str) {
        let Value::Object(params) = params else { panic!("an object") };
        let (answer, _) = apply(&mut world(), method, token, &Params(params));
        let got = answer.map_or_else(|refusal| refusal.error(), |_| "ok".to_owned());
        assert_eq!(got, want, "{method} with {token}");
    }

    #[test]
    fn refusals_have_the_names_of_the_real_service() {
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
