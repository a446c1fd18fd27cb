//! User actions as the payloads of envelopes.

use serde_json::{Value, json};

/// A message from a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    pub channel: String,
    pub user: String,
    pub text: String,
    pub thread: Option<String>,
    pub parent_user: Option<String>,
    /// The workspace; by default that of the channel.
    pub team: Option<String>,
    /// Fields to add to the event or to replace.
    pub fields: Value,
}

impl Incoming {
    pub fn new(channel: impl Into<String>, user: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            channel: channel.into(),
            user: user.into(),
            text: text.into(),
            thread: None,
            parent_user: None,
            team: None,
            fields: json!({}),
        }
    }

    #[must_use]
    pub fn thread(mut self, root: impl Into<String>) -> Self {
        self.thread = Some(root.into());
        self
    }

    #[must_use]
    pub fn team(mut self, team: impl Into<String>) -> Self {
        self.team = Some(team.into());
        self
    }

    /// Adds or replaces fields, such as `{"subtype": "bot_message", "bot_id": "B9"}`.
    #[must_use]
    pub fn with(mut self, fields: Value) -> Self {
        self.fields = fields;
        self
    }

    /// The event, as `message` or `app_mention`.
    pub(crate) fn event(&self, kind: &str, team: &str, ts: &str) -> Value {
        let mut event = json!({
            "type": kind, "channel": self.channel, "user": self.user, "text": self.text,
            "ts": ts, "event_ts": ts, "team": team,
        });
        if kind == "message" {
            event["channel_type"] = kind_of(&self.channel).into();
        }
        if let Some(thread) = &self.thread {
            event["thread_ts"] = thread.as_str().into();
        }
        if let Some(parent) = &self.parent_user {
            event["parent_user_id"] = parent.as_str().into();
        }
        if let (Some(event), Some(fields)) = (event.as_object_mut(), self.fields.as_object()) {
            event.extend(fields.clone());
        }
        event
    }
}

/// The payload of an `events_api` envelope.
pub(crate) fn callback(team: &str, bot: &str, number: u64, event: &Value) -> Value {
    json!({
        "token": "verification", "team_id": team, "context_team_id": team, "api_app_id": "A1",
        "event": event, "type": "event_callback", "event_id": format!("Ev{number:08}"),
        "event_time": 1_700_000_000_u64 + number,
        "authorizations": [{ "team_id": team, "user_id": bot, "is_bot": true, "enterprise_id": null }],
        "is_ext_shared_channel": false, "event_context": "4-x",
    })
}

/// The payload of a `slash_commands` envelope.
pub(crate) fn command(
    team: &str,
    number: u64,
    response_url: &str,
    (channel, user): (&str, &str),
    (command, text): (&str, &str),
) -> Value {
    json!({
        "token": "verification", "team_id": team, "team_domain": "acme", "channel_id": channel,
        "channel_name": if channel.starts_with('D') { "directmessage" } else { "general" },
        "user_id": user, "user_name": "ada", "command": command, "text": text, "api_app_id": "A1",
        "is_enterprise_install": "false", "response_url": response_url, "trigger_id": format!("trigger.{number}"),
    })
}

/// The payload of an `interactive` envelope: a button press.
pub(crate) fn pressed(
    team: &str,
    number: u64,
    response_url: &str,
    (channel, user): (&str, &str),
    message: &Value,
    button: &Value,
) -> Value {
    let mut action = button.clone();
    action["block_id"] = "b1".into();
    action["action_ts"] = format!("{}.{number:06}", crate::relay::now()).into();
    let mut container = json!({
        "type": "message", "message_ts": message["ts"], "channel_id": channel, "is_ephemeral": false,
    });
    if let Some(thread) = message.get("thread_ts") {
        container["thread_ts"] = thread.clone();
    }
    json!({
        "type": "block_actions", "user": { "id": user, "username": "ada", "name": "ada", "team_id": team },
        "api_app_id": "A1", "token": "verification", "container": container,
        "trigger_id": format!("trigger.{number}"), "team": { "id": team, "domain": "acme" },
        "enterprise": null, "is_enterprise_install": false,
        "channel": { "id": channel, "name": if channel.starts_with('D') { "directmessage" } else { "general" } },
        "message": message, "response_url": response_url, "actions": [action],
    })
}

fn kind_of(channel: &str) -> &'static str {
    match channel.as_bytes().first() {
        Some(b'D') => "im",
        Some(b'G') => "mpim",
        Some(_) | None => "channel",
    }
}
