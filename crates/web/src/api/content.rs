//! Texts, flags and messages in a body, as leniently as clients need it: `null` counts as absent, content is a text or a
//! list of parts. Each has the limits of one message.

use std::fmt;

use petasos_core::transcript::Role;
use petasos_gateway::Told;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::request::{Invalid, is_session_id};
use crate::error::ApiError;

const PART_CHARS: usize = 65_536;
const PARTS: usize = 1000;
/// More than this is more than one message holds.
const TEXT: usize = 1 << 20;
const NOT_A_MESSAGE: &str = "A message must be an object";

/// A text; an empty one counts as absent.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) if text.len() > TEXT => {
            Err(Invalid::coded("content_too_long", " is longer than 1 MB").error())
        }
        Value::String(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(Invalid::new(" must be a string").error())
        }
    }
}

/// Flags come as such, as numbers, or as the words that people write into forms.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let wrong = || Invalid::new(" must be true or false").error();
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(flag)),
        Value::Number(number) => Ok(Some(number.as_f64() != Some(0.0))),
        Value::String(word) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" => Ok(Some(true)),
            "false" | "0" | "off" | "no" | "" => Ok(Some(false)),
            _ => Err(wrong()),
        },
        Value::Array(_) | Value::Object(_) => Err(wrong()),
    }
}

/// The name of a conversation.
pub(super) fn session_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(id) if is_session_id(&id) => Ok(Some(id)),
        _ => Err(Invalid::coded("invalid_session_id", "Invalid session ID").error()),
    }
}

/// What a message consists of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    /// Addresses of pictures: `data:` or `http(s):`.
    pub(super) pictures: Vec<String>,
}

impl Content {
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.pictures.is_empty()
    }

    fn text(text: String) -> Result<Self, Invalid> {
        if text.len() > TEXT {
            return Err(Invalid::coded("content_too_long", "The text is longer than 1 MB"));
        }
        Ok(Self { text, pictures: Vec::new() })
    }

    fn parts(parts: &[Value]) -> Result<Self, Invalid> {
        if parts.len() > PARTS {
            return Err(Invalid::coded("too_many_parts", format!("More than {PARTS} content parts")));
        }
        let mut pictures = Vec::new();
        let mut texts = Vec::new();
        for part in parts {
            texts.extend(self::part(part, &mut pictures)?);
        }
        Ok(Self { text: texts.join("\n"), pictures })
    }
}

impl TryFrom<Value> for Content {
    type Error = Invalid;

    fn try_from(value: Value) -> Result<Self, Invalid> {
        match value {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Self::text(text),
            Value::Array(parts) => Self::parts(&parts),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(Invalid::coded("invalid_content", "Content must be a string or an array of parts"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(Invalid::error)
    }
}

fn part(part: &Value, pictures: &mut Vec<String>) -> Result<Option<String>, Invalid> {
    if let Value::String(text) = part {
        return sized(text).map(Some);
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" => match part.get("text").and_then(Value::as_str) {
            Some(text) => sized(text).map(Some),
            None => Err(Invalid::coded("invalid_content", "A text part must have a text")),
        },
        "image_url" | "input_image" => {
            pictures.push(picture(part)?);
            Ok(None)
        }
        "file" | "input_file" => Err(Invalid::coded(
            "unsupported_content_type",
            "Inline image inputs are supported, but uploaded files and document inputs are not supported on this \
             endpoint.",
        )),
        other => {
            let shown: String = other.chars().take(64).collect();
            let message = format!("Unsupported content part type: '{shown}'");
            Err(Invalid::coded("unsupported_content_type", message))
        }
    }
}

fn sized(text: &str) -> Result<String, Invalid> {
    if text.chars().count() > PART_CHARS {
        let message = format!("A text part is longer than {PART_CHARS} characters");
        return Err(Invalid::coded("content_too_long", message));
    }
    Ok(text.to_owned())
}

fn picture(part: &Value) -> Result<String, Invalid> {
    let address = part.get("image_url");
    let address = address.and_then(|it| it.as_str().or_else(|| it.get("url").and_then(Value::as_str)));
    let address = address.unwrap_or_default();
    let known = ["data:image/", "http://", "https://"];
    let lower: String = address.chars().take(16).collect::<String>().to_ascii_lowercase();
    if !known.iter().any(|start| lower.starts_with(start)) {
        let message = "Image inputs must be http(s) URLs or data:image/... URLs.";
        return Err(Invalid::coded("invalid_image_url", message));
    }
    Ok(address.to_owned())
}

/// A message of a conversation. The document shows the usual form; a text alone is a user's message.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "ChatMessage")]
pub(super) struct Said {
    #[schemars(with = "ChatRole")]
    role: Option<Value>,
    #[schemars(with = "MessageContent")]
    content: Option<Content>,
}

/// The same, however it was sent.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
pub(super) struct Message(Said);

/// A message that must be an object.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
pub(super) struct InputItem(Said);

impl Said {
    fn by_user(content: Content) -> Self {
        Self { role: Some("user".into()), content: Some(content) }
    }
}

impl From<Message> for Said {
    fn from(message: Message) -> Self {
        message.0
    }
}

impl From<InputItem> for Said {
    fn from(item: InputItem) -> Self {
        item.0
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Message;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", Invalid::coded("invalid_message", NOT_A_MESSAGE))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Message, E> {
                let content = Content::text(text.to_owned()).map_err(Invalid::error)?;
                Ok(Message(Said::by_user(content)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Message, A::Error> {
                Said::deserialize(MapAccessDeserializer::new(map)).map(Message)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = InputItem;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let message = "An input item must be an object with role and content";
                write!(formatter, "{}", Invalid::coded("invalid_input", message))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InputItem, A::Error> {
                Said::deserialize(MapAccessDeserializer::new(map)).map(InputItem)
            }
        }

        deserializer.deserialize_any(Object)
    }
}

/// A text, or messages of which the last is asked.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum AgentInput {
    Text(#[schemars(with = "String", length(min = 1))] Content),
    Messages(#[schemars(length(min = 1))] Vec<InputItem>),
}

impl<'de> Deserialize<'de> for AgentInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = AgentInput;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", Invalid::new(" must be a string or array"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AgentInput, E> {
                Content::text(text.to_owned()).map(AgentInput::Text).map_err(Invalid::error)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<AgentInput, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(AgentInput::Messages)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// What the document shows of [`Content`].
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ContentPart {
    Text {
        r#type: TextKind,
        text: String,
    },
    Image {
        #[schemars(extend("const" = "image_url"))]
        r#type: String,
        image_url: ImageUrl,
    },
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum TextKind {
    Text,
    InputText,
    OutputText,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ImageUrl {
    #[schemars(regex(pattern = "^data:image/"))]
    url: String,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum ChatRole {
    System,
    Developer,
    User,
    Assistant,
}

/// A conversation as a client sends it: instructions, what was said, and what is asked now.
#[derive(Debug, Default)]
pub(super) struct Talk {
    pub(super) instructions: Option<String>,
    pub(super) history: Vec<Told>,
    pub(super) asked: Option<Content>,
}

impl Talk {
    /// Only what users and assistants said counts; the last of it is asked.
    pub(super) fn of(messages: impl IntoIterator<Item = impl Into<Said>>) -> Self {
        let mut instructions = Vec::new();
        let mut spoken: Vec<(Role, Content)> = Vec::new();
        for message in messages {
            let Said { role, content } = message.into();
            let content = content.unwrap_or_default();
            match role.as_ref().and_then(Value::as_str).unwrap_or_default() {
                "system" | "developer" => instructions.push(content.text),
                "user" => spoken.push((Role::User, content)),
                "assistant" => spoken.push((Role::Assistant, content)),
                // Tools are the server's own; what a client says of others means nothing here.
                _ => {}
            }
        }
        let asked = spoken.pop();
        let instructions = Some(instructions.join("\n")).filter(|text| !text.is_empty());
        Self { instructions, history: history(spoken), asked: asked.map(|(_, content)| content) }
    }

    /// What was said before; the last of it is no question: it has been answered, or it would not be history.
    pub(super) fn past(messages: Vec<Message>) -> Vec<Told> {
        Self::of(messages.into_iter().map(Said::from).chain([Said::by_user(Content::default())])).history
    }
}

fn history(spoken: Vec<(Role, Content)>) -> Vec<Told> {
    let spoken = spoken.into_iter().filter(|(_, content)| !content.is_empty());
    spoken.map(|(role, content)| Told { role, text: content.text }).collect()
}

/// What is asked now, and what was said before.
pub(super) struct Asked {
    pub(super) content: Content,
    pub(super) history: Vec<Told>,
    pub(super) instructions: Option<String>,
}

impl Asked {
    /// `before`: the member `conversation_history`.
    pub(super) fn new(input: Option<AgentInput>, before: Option<Vec<Message>>) -> Result<Self, ApiError> {
        let talk = match input {
            None => Talk::default(),
            Some(AgentInput::Text(content)) => Talk { asked: Some(content), ..Talk::default() },
            Some(AgentInput::Messages(items)) => Talk::of(items),
        };
        let content = talk.asked.filter(|asked| !asked.is_empty());
        let mut history = before.map(Talk::past).unwrap_or_default();
        history.extend(talk.history);
        Ok(Self {
            content: content.ok_or_else(|| ApiError::bad_request("Missing 'input' field").param("input"))?,
            history,
            instructions: talk.instructions,
        })
    }
}
