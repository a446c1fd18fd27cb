//! Parses interactions forwarded by a connector: slash commands and pressed buttons. Pure.

use petasos_core::Source;
use petasos_core::message::ChatType;
use petasos_relay::event::PromptResponse;
use petasos_relay::field::{self, Object};
use petasos_relay::{Event, Forward};
use serde_json::Value;

use crate::AdapterKind;

/// Kind of credential that the connector keeps to answer an interaction.
pub(crate) const CREDENTIAL: &str = "discord.interaction_token";

const MAX_CHOICE: usize = 64;
const MAX_ID: usize = 32;
const MAX_DEPTH: usize = 8;

/// `None`: no turn can answer it.
pub(crate) fn event(forward: &Forward) -> Option<Event> {
    let body: Object = serde_json::from_slice(&forward.body).ok()?;
    let (kind, text, prompt_response) = match body.get("type").and_then(Value::as_u64)? {
        2 => ("command", command(field::object(&body, "data")?)?, None),
        3 => {
            let id = field::given(field::object(&body, "data")?, "custom_id")?;
            match parse_choice(&id) {
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
        source: source(forward, &body)?,
    })
}

fn source(forward: &Forward, body: &Object) -> Option<Source> {
    let scope_id = field::given(body, "guild_id");
    let chat_type = if scope_id.is_some() { ChatType::Group } else { ChatType::Dm };
    let member = field::object(body, "member").and_then(|member| field::object(member, "user"));
    let user = member.or_else(|| field::object(body, "user"));
    let of_user = |name| user.and_then(|user| field::given(user, name));
    Some(Source {
        user_id: of_user("id"),
        user_name: of_user("global_name").or_else(|| of_user("username")),
        scope_id,
        profile: forward.profile.clone(),
        ..Source::new(AdapterKind::Discord.platform(), chat_type, field::given(body, "channel_id")?)
    })
}

fn command(data: &Object) -> Option<String> {
    let mut text = format!("/{}", field::given(data, "name")?);
    append_options(data, &mut text, 0);
    Some(text)
}

fn append_options(of: &Object, text: &mut String, depth: usize) {
    for option in field::list(of, "options").iter().filter_map(Value::as_object) {
        let group = matches!(option.get("type").and_then(Value::as_u64), Some(1 | 2));
        let word = if group { field::given(option, "name") } else { field::text(option, "value") };
        if let Some(word) = word {
            text.push(' ');
            text.push_str(&word);
        }
        if group && depth < MAX_DEPTH {
            append_options(option, text, depth + 1);
        }
    }
}

/// `hp1:<prompt>:<option>`
fn parse_choice(token: &str) -> Option<PromptResponse> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let id = |text: &str| (1..=MAX_ID).contains(&text.len()) && text.chars().all(plain);
    let mut parts = token.split(':');
    let (Some("hp1"), Some(prompt), Some(option), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let chosen = || PromptResponse { prompt_id: prompt.to_string(), option_id: option.to_string() };
    (token.len() <= MAX_CHOICE && id(prompt) && id(option)).then(chosen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn parses_a_slash_command_as_typed_text() {
        let data = json!({"name": "model", "options": [
            {"type": 1, "name": "set", "options": [{"type": 3, "name": "which", "value": "big"}, {"type": 4, "value": 7}]},
        ]});
        let event = event(&forward(&interaction(2, data))).unwrap();
        assert_eq!((event.text.as_str(), event.kind.as_str()), ("/model set big 7", "command"));
        assert_eq!(event.message_id.as_deref(), Some("i1"));
        assert_eq!((event.source.platform.as_str(), event.source.chat_type), ("discord", ChatType::Group));
        assert_eq!(event.source.user_id.as_deref(), Some("u1"));
        assert_eq!(event.source.scope_id.as_deref(), Some("g1"));
    }

    #[test]
    fn forwarded_interaction_keeps_author_and_profile() {
        let mut body = interaction(2, json!({"name": "new"}));
        let named = |body: &Value| {
            let forward = Forward { profile: Some("work".into()), ..forward(body) };
            let source = event(&forward).unwrap().source;
            assert_eq!(source.profile.as_deref(), Some("work"));
            source.user_name
        };
        assert_eq!(named(&body).as_deref(), Some("ann"));
        body["member"]["user"]["global_name"] = "Ann".into();
        assert_eq!(named(&body).as_deref(), Some("Ann"));
    }

    #[test]
    fn reads_options_down_to_the_maximum_depth() {
        // Nested groups, each with a value; only groups have options.
        let nested = (0..MAX_DEPTH + 3).fold(
            json!({"type": 3, "value": "end"}),
            |inner, _| json!({"type": 1, "name": "g", "options": [inner]}),
        );
        let text = |option: Value| {
            let data = json!({"name": "c", "options": [option]});
            event(&forward(&interaction(2, data))).unwrap().text
        };
        let words = text(nested).split_whitespace().count();
        assert_eq!(words, 1 + MAX_DEPTH + 1, "the command and its groups");
        let value = json!({"type": 3, "value": "v", "options": [{"type": 3, "value": "hidden"}]});
        assert_eq!(text(value), "/c v");
    }

    #[test]
    fn parses_a_pressed_button_as_id_or_choice() {
        let press = |id: &str| event(&forward(&interaction(3, json!({"custom_id": id})))).unwrap();
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
    fn ignores_interactions_that_no_turn_can_answer() {
        let mut private = interaction(2, json!({"name": "new"}));
        private["guild_id"] = Value::Null;
        assert_eq!(event(&forward(&private)).unwrap().source.chat_type, ChatType::Dm);
        assert_eq!(event(&forward(&json!("x"))), None);
        assert_eq!(event(&forward(&json!({"type": 2}))), None);
    }
}
