//! A request that a platform made at the connector's edge, passed on as it came: verified there, answered there, and
//! stripped of what only the connector may know.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::event::{Event, PromptResponse};
use crate::wire::field;
use crate::wire::field::Object;
use crate::wire::frame::Malformed;
use petasos_core::message::{ChatType, Platform, Source};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forward {
    pub platform: String,
    pub bot_id: String,
    pub method: String,
    pub path: String,
    /// In the order of their arrival.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub profile: Option<String>,
}

/// The longest token of a button that names a choice.
const LONGEST_CHOICE: usize = 64;
const LONGEST_ID: usize = 32;
/// How deep options of a command are read.
const DEEPEST: usize = 8;

impl Forward {
    pub fn read(value: &Value) -> Result<Self, Malformed> {
        let forward = value.as_object().ok_or(Malformed::NotAnObject)?;
        let text = |name| field::text(forward, name).unwrap_or_default();
        Ok(Self {
            platform: text("platform"),
            bot_id: text("botId"),
            method: text("method"),
            path: text("path"),
            headers: field::list(forward, "headers").iter().filter_map(header).collect(),
            body: STANDARD.decode(text("bodyB64")).unwrap_or_default(),
            profile: field::given(forward, "profile"),
        })
    }

    pub fn value(&self) -> Value {
        let mut value = json!({
            "platform": self.platform, "botId": self.bot_id, "method": self.method, "path": self.path,
            "headers": self.headers, "bodyB64": STANDARD.encode(&self.body),
        });
        if let Some(profile) = &self.profile {
            value["profile"] = profile.as_str().into();
        }
        value
    }

    /// What the connector holds of it: the way to answer.
    pub fn permission(&self) -> Option<&'static str> {
        self.platform.eq_ignore_ascii_case("discord").then_some("discord.interaction_token")
    }

    /// What somebody did, if it is something that a turn can answer. `None`: it never will be.
    pub fn event(&self) -> Option<Event> {
        if !self.platform.eq_ignore_ascii_case("discord") {
            return None;
        }
        let body: Map<String, Value> = serde_json::from_slice(&self.body).ok()?;
        let (kind, text, prompt_response) = match body.get("type").and_then(Value::as_u64)? {
            2 => ("command", command(field::object(&body, "data")?)?, None),
            3 => {
                let id = field::given(field::object(&body, "data")?, "custom_id")?;
                match choice(&id) {
                    Some(chosen) => ("text", String::new(), Some(chosen)),
                    None => ("text", id, None),
                }
            }
            _other => ("text", String::new(), None),
        };
        Some(Event {
            text,
            kind: kind.to_string(),
            message_id: field::given(&body, "id"),
            event_id: None,
            sent_at: None,
            is_edit: false,
            quoted: None,
            files: Vec::new(),
            context: Vec::new(),
            prompt_response,
            source: self.source(&body)?,
        })
    }

    fn source(&self, body: &Object) -> Option<Source> {
        let scope_id = field::given(body, "guild_id");
        let chat_type = if scope_id.is_some() { ChatType::Group } else { ChatType::Dm };
        let member = field::object(body, "member").and_then(|member| field::object(member, "user"));
        let user = member.or_else(|| field::object(body, "user"));
        let of_user = |name| user.and_then(|user| field::given(user, name));
        Some(Source {
            user_id: of_user("id"),
            user_name: of_user("global_name").or_else(|| of_user("username")),
            scope_id,
            profile: self.profile.clone(),
            ..Source::new(Platform::parse(&self.platform)?, chat_type, field::given(body, "channel_id")?)
        })
    }
}

fn header(pair: &Value) -> Option<(String, String)> {
    match pair.as_array()?.as_slice() {
        [name, value] => Some((field::scalar(name)?, field::scalar(value).unwrap_or_default())),
        _odd => None,
    }
}

fn command(data: &Object) -> Option<String> {
    let mut text = format!("/{}", field::given(data, "name")?);
    options(data, &mut text, 0);
    Some(text)
}

fn options(of: &Object, text: &mut String, depth: usize) {
    for option in field::list(of, "options").iter().filter_map(Value::as_object) {
        let group = matches!(option.get("type").and_then(Value::as_u64), Some(1 | 2));
        let word = if group { field::given(option, "name") } else { field::text(option, "value") };
        if let Some(word) = word {
            text.push(' ');
            text.push_str(&word);
        }
        if group && depth < DEEPEST {
            options(option, text, depth + 1);
        }
    }
}

/// `hp1:<prompt>:<option>`
fn choice(token: &str) -> Option<PromptResponse> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let id = |text: &str| (1..=LONGEST_ID).contains(&text.len()) && text.chars().all(plain);
    let mut parts = token.split(':');
    let (Some("hp1"), Some(prompt), Some(option), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let chosen = || PromptResponse { prompt_id: prompt.to_string(), option_id: option.to_string() };
    (token.len() <= LONGEST_CHOICE && id(prompt) && id(option)).then(chosen)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn forward(body: &Value) -> Forward {
        Forward {
            platform: "discord".into(),
            body: body.to_string().into_bytes(),
            headers: vec![("a".into(), "b".into()), ("a".into(), "c".into())],
            ..Forward::default()
        }
    }

    fn interaction(kind: u64, data: Value) -> Value {
        json!({"id": "i1", "type": kind, "data": data, "channel_id": "c1", "guild_id": "g1",
               "member": {"user": {"id": "u1", "username": "ann"}}, "token": "never used"})
    }

    #[test]
    fn a_forward_reads_as_it_was_written() {
        let told = forward(&json!({}));
        assert_eq!(Forward::read(&told.value()), Ok(told));
        let odd = json!({"headers": [["a"], ["b", 5], ["c", "d", "e"], 7], "bodyB64": "%%", "platform": 9});
        let read = Forward::read(&odd).unwrap();
        assert_eq!((read.headers, read.body.len()), (vec![("b".into(), "5".into())], 0));
        assert_eq!(Forward::read(&Value::Null), Err(Malformed::NotAnObject));
    }

    #[test]
    fn a_slash_command_reads_as_if_it_were_typed() {
        let data = json!({"name": "model", "options": [
            {"type": 1, "name": "set", "options": [{"type": 3, "name": "which", "value": "big"}, {"type": 4, "value": 7}]},
        ]});
        let event = forward(&interaction(2, data)).event().unwrap();
        assert_eq!((event.text.as_str(), event.kind.as_str()), ("/model set big 7", "command"));
        assert_eq!(event.message_id.as_deref(), Some("i1"));
        assert_eq!((event.source.platform.as_str(), event.source.chat_type), ("discord", ChatType::Group));
        assert_eq!(event.source.user_id.as_deref(), Some("u1"));
        assert_eq!(event.source.scope_id.as_deref(), Some("g1"));
    }

    #[test]
    fn forwarded_interaction_keeps_author_and_profile() {
        let mut told = interaction(2, json!({"name": "new"}));
        let named = |told: &Value| {
            let forward = Forward { profile: Some("work".into()), ..forward(told) };
            let source = forward.event().unwrap().source;
            assert_eq!(source.profile.as_deref(), Some("work"));
            source.user_name
        };
        assert_eq!(named(&told).as_deref(), Some("ann"));
        told["member"]["user"]["global_name"] = "Ann".into();
        assert_eq!(named(&told).as_deref(), Some("Ann"));
    }

    #[test]
    fn only_discord_holds_a_permission_to_answer() {
        let of = |platform: &str| Forward { platform: platform.into(), ..Forward::default() }.permission();
        assert_eq!(of("Discord"), Some("discord.interaction_token"));
        assert_eq!(of("slack"), None);
    }

    #[test]
    fn options_are_read_to_their_deepest_level_and_no_further() {
        // A group in a group in a group, and a value in each; only groups have options of their own.
        let nested = (0..DEEPEST + 3).fold(
            json!({"type": 3, "value": "end"}),
            |inner, _| json!({"type": 1, "name": "g", "options": [inner]}),
        );
        let text = |option: Value| {
            let data = json!({"name": "c", "options": [option]});
            forward(&interaction(2, data)).event().unwrap().text
        };
        let words = text(nested).split_whitespace().count();
        assert_eq!(words, 1 + DEEPEST + 1, "the command and its groups");
        let value = json!({"type": 3, "value": "v", "options": [{"type": 3, "value": "hidden"}]});
        assert_eq!(text(value), "/c v");
    }

    #[test]
    fn a_pressed_button_is_its_id_or_a_choice() {
        let press = |id: &str| forward(&interaction(3, json!({"custom_id": id}))).event().unwrap();
        assert_eq!(press("again").text, "again");
        let chosen = press("hp1:p-1:yes");
        assert_eq!(chosen.text, "");
        let want = PromptResponse { prompt_id: "p-1".into(), option_id: "yes".into() };
        assert_eq!(chosen.prompt_response, Some(want));
        for token in ["hp1:p", "hp1:p:o:x", "hp1::o", "hp1:p q:o", "hp2:p:o"] {
            assert_eq!(press(token).text, token);
        }
    }

    #[test]
    fn what_no_turn_can_answer_is_nothing() {
        let mut private = interaction(2, json!({"name": "new"}));
        private["guild_id"] = Value::Null;
        assert_eq!(forward(&private).event().unwrap().source.chat_type, ChatType::Dm);
        assert_eq!(forward(&json!("x")).event(), None);
        assert_eq!(forward(&json!({"type": 2})).event(), None);
        let elsewhere =
            Forward { platform: "slack".into(), ..forward(&interaction(2, json!({"name": "x"}))) };
        assert_eq!(elsewhere.event(), None);
    }
}
