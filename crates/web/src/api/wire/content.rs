//! Lenient parsing of texts, flags and messages: `null` counts as absent, content is a string or a list of parts.

use std::fmt;

use petasos_core::transcript::Role;
use petasos_gateway::HistoryMessage;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::request::{InvalidField, is_session_id};
use crate::error::ApiError;

const MAX_PART_CHARS: usize = 65_536;
const MAX_PARTS: usize = 1000;
const MAX_TEXT_BYTES: usize = 1 << 20;
const NOT_A_MESSAGE: &str = "A message must be an object";

/// A string; an empty one counts as absent.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            Err(InvalidField::coded("content_too_long", " is longer than 1 MB").error())
        }
        Value::String(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(InvalidField::new(" must be a string").error())
        }
    }
}

/// A bool, a number, or a word such as `on` or `no`.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let wrong = || InvalidField::new(" must be true or false").error();
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

pub(crate) fn session_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(id) if is_session_id(&id) => Ok(Some(id)),
        _ => Err(InvalidField::coded("invalid_session_id", "Invalid session ID").error()),
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) text: String,
    /// `data:` or `http(s):` URLs.
    pub(crate) images: Vec<String>,
}

impl Content {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    fn text(text: String) -> Result<Self, InvalidField> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(InvalidField::coded("content_too_long", "The text is longer than 1 MB"));
        }
        Ok(Self { text, images: Vec::new() })
    }

    fn parts(parts: &[Value]) -> Result<Self, InvalidField> {
        if parts.len() > MAX_PARTS {
            return Err(InvalidField::coded(
                "too_many_parts",
                format!("More than {MAX_PARTS} content parts"),
            ));
        }
        let mut images = Vec::new();
        let mut texts = Vec::new();
        for part in parts {
            texts.extend(parse_part(part, &mut images)?);
        }
        Ok(Self { text: texts.join("\n"), images })
    }
}

impl TryFrom<Value> for Content {
    type Error = InvalidField;

    fn try_from(value: Value) -> Result<Self, InvalidField> {
        match value {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Self::text(text),
            Value::Array(parts) => Self::parts(&parts),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(InvalidField::coded("invalid_content", "Content must be a string or an array of parts"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(InvalidField::error)
    }
}

fn parse_part(part: &Value, images: &mut Vec<String>) -> Result<Option<String>, InvalidField> {
    if let Value::String(text) = part {
        return bounded_text(text).map(Some);
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" => match part.get("text").and_then(Value::as_str) {
            Some(text) => bounded_text(text).map(Some),
            None => Err(InvalidField::coded("invalid_content", "A text part must have a text")),
        },
        "image_url" | "input_image" => {
            images.push(image_url(part)?);
            Ok(None)
        }
        "file" | "input_file" => Err(InvalidField::coded(
            "unsupported_content_type",
            "Inline image inputs are supported, but uploaded files and document inputs are not supported on this \
             endpoint.",
        )),
        other => {
            let shown: String = other.chars().take(64).collect();
            let message = format!("Unsupported content part type: '{shown}'");
            Err(InvalidField::coded("unsupported_content_type", message))
        }
    }
}

fn bounded_text(text: &str) -> Result<String, InvalidField> {
    if text.chars().count() > MAX_PART_CHARS {
        let message = format!("A text part is longer than {MAX_PART_CHARS} characters");
        return Err(InvalidField::coded("content_too_long", message));
    }
    Ok(text.to_owned())
}

fn image_url(part: &Value) -> Result<String, InvalidField> {
    let address = part.get("image_url");
    let address = address.and_then(|it| it.as_str().or_else(|| it.get("url").and_then(Value::as_str)));
    let address = address.unwrap_or_default();
    let known = ["data:image/", "http://", "https://"];
    let lower: String = address.chars().take(16).collect::<String>().to_ascii_lowercase();
    if !known.iter().any(|start| lower.starts_with(start)) {
        let message = "Image inputs must be http(s) URLs or data:image/... URLs.";
        return Err(InvalidField::coded("invalid_image_url", message));
    }
    Ok(address.to_owned())
}

/// A message of a conversation. A string alone is a message of the user.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "ChatMessage")]
pub(crate) struct InputMessage {
    #[schemars(with = "ChatRole")]
    role: Option<Value>,
    #[schemars(with = "MessageContent")]
    content: Option<Content>,
}

/// A message as an object or a string.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
pub(crate) struct LenientMessage(InputMessage);

/// A message that must be an object.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
pub(crate) struct InputItem(InputMessage);

impl InputMessage {
    fn from_user(content: Content) -> Self {
        Self { role: Some("user".into()), content: Some(content) }
    }
}

impl From<LenientMessage> for InputMessage {
    fn from(message: LenientMessage) -> Self {
        message.0
    }
}

impl From<InputItem> for InputMessage {
    fn from(item: InputItem) -> Self {
        item.0
    }
}

impl<'de> Deserialize<'de> for LenientMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MessageVisitor;

        impl<'de> Visitor<'de> for MessageVisitor {
            type Value = LenientMessage;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", InvalidField::coded("invalid_message", NOT_A_MESSAGE))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LenientMessage, E> {
                let content = Content::text(text.to_owned()).map_err(InvalidField::error)?;
                Ok(LenientMessage(InputMessage::from_user(content)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientMessage, A::Error> {
                InputMessage::deserialize(MapAccessDeserializer::new(map)).map(LenientMessage)
            }
        }

        deserializer.deserialize_any(MessageVisitor)
    }
}

impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InputItemVisitor;

        impl<'de> Visitor<'de> for InputItemVisitor {
            type Value = InputItem;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let message = "An input item must be an object with role and content";
                write!(formatter, "{}", InvalidField::coded("invalid_input", message))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InputItem, A::Error> {
                InputMessage::deserialize(MapAccessDeserializer::new(map)).map(InputItem)
            }
        }

        deserializer.deserialize_any(InputItemVisitor)
    }
}

/// A text, or messages of which the last is the prompt.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AgentInput {
    Text(#[schemars(with = "String", length(min = 1))] Content),
    Messages(#[schemars(length(min = 1))] Vec<InputItem>),
}

impl<'de> Deserialize<'de> for AgentInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AgentInputVisitor;

        impl<'de> Visitor<'de> for AgentInputVisitor {
            type Value = AgentInput;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", InvalidField::new(" must be a string or array"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AgentInput, E> {
                Content::text(text.to_owned()).map(AgentInput::Text).map_err(InvalidField::error)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<AgentInput, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(AgentInput::Messages)
            }
        }

        deserializer.deserialize_any(AgentInputVisitor)
    }
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ContentPart {
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
pub(crate) enum TextKind {
    Text,
    InputText,
    OutputText,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ImageUrl {
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

/// A conversation sent by a client, split into instructions, history and prompt.
#[derive(Debug, Default)]
pub(crate) struct ParsedConversation {
    pub(crate) instructions: Option<String>,
    pub(crate) history: Vec<HistoryMessage>,
    pub(crate) prompt: Option<Content>,
}

impl ParsedConversation {
    /// Uses the messages of users and assistants; the last one is the prompt.
    pub(crate) fn from_messages(messages: impl IntoIterator<Item = impl Into<InputMessage>>) -> Self {
        let mut instructions = Vec::new();
        let mut turns: Vec<(Role, Content)> = Vec::new();
        for message in messages {
            let InputMessage { role, content } = message.into();
            let content = content.unwrap_or_default();
            match role.as_ref().and_then(Value::as_str).unwrap_or_default() {
                "system" | "developer" => instructions.push(content.text),
                "user" => turns.push((Role::User, content)),
                "assistant" => turns.push((Role::Assistant, content)),
                // Tools run on the server, so tool messages of clients are ignored.
                _ => {}
            }
        }
        let prompt = turns.pop();
        let instructions = Some(instructions.join("\n")).filter(|text| !text.is_empty());
        Self { instructions, history: history(turns), prompt: prompt.map(|(_, content)| content) }
    }

    /// Parses messages without a prompt.
    pub(crate) fn parse_history(messages: Vec<LenientMessage>) -> Vec<HistoryMessage> {
        Self::from_messages(
            messages.into_iter().map(InputMessage::from).chain([InputMessage::from_user(Content::default())]),
        )
        .history
    }
}

fn history(turns: Vec<(Role, Content)>) -> Vec<HistoryMessage> {
    let turns = turns.into_iter().filter(|(_, content)| !content.is_empty());
    turns.map(|(role, content)| HistoryMessage { role, text: content.text }).collect()
}

pub(crate) struct RunInput {
    pub(crate) content: Content,
    pub(crate) history: Vec<HistoryMessage>,
    pub(crate) instructions: Option<String>,
}

impl RunInput {
    /// `history`: the member `conversation_history`.
    pub(crate) fn new(
        input: Option<AgentInput>,
        history: Option<Vec<LenientMessage>>,
    ) -> Result<Self, ApiError> {
        let conversation = match input {
            None => ParsedConversation::default(),
            Some(AgentInput::Text(content)) => {
                ParsedConversation { prompt: Some(content), ..ParsedConversation::default() }
            }
            Some(AgentInput::Messages(items)) => ParsedConversation::from_messages(items),
        };
        let content = conversation.prompt.filter(|prompt| !prompt.is_empty());
        let mut history = history.map(ParsedConversation::parse_history).unwrap_or_default();
        history.extend(conversation.history);
        Ok(Self {
            content: content.ok_or_else(|| ApiError::bad_request("Missing 'input' field").param("input"))?,
            history,
            instructions: conversation.instructions,
        })
    }
}
