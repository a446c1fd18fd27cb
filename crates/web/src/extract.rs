//! Request extractors of the page and the control socket.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use petasos_core::message::ChatType;
use petasos_core::platform::Peer;
use petasos_core::{Platform, Source};
use petasos_platforms::body_budget::Exhausted;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;
use crate::server::connection::is_caused_by;

const MAX_ID_LENGTH: usize = 64;
/// The body limit of the router, for messages.
const BODY_LIMIT: &str = "1 MiB";

/// A JSON body with exactly the members of its type; an `Option` may be left out.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + JsonSchema> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let value = match Json::<Value>::from_request(request, state).await {
            Ok(Json(value)) => value,
            Err(rejection) if is_caused_by::<Exhausted>(&rejection) => {
                return Err(ApiError::no_memory_for_body());
            }
            Err(rejection) => {
                let message = match rejection.status() {
                    StatusCode::BAD_REQUEST => "the body is not JSON".to_owned(),
                    StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                        "the body must be JSON, with the header content-type: application/json".to_owned()
                    }
                    _ => rejection.body_text(),
                };
                return Err(ApiError::from_axum(rejection.status(), message, BODY_LIMIT));
            }
        };
        deserialize_checked(value).map(Self).map_err(ApiError::bad_request)
    }
}

/// Reports all invalid members at once. Members are strings or unsigned integers.
fn deserialize_checked<T: DeserializeOwned + JsonSchema>(value: Value) -> Result<T, String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let types: Vec<(&str, &Value)> = properties.map(|(name, it)| (name.as_str(), &it["type"])).collect();
    let optional = types.iter().map(|(name, _)| *name).filter(|name| !required.contains(name));
    let names: Vec<&str> = required.iter().copied().chain(optional).collect();
    let Value::Object(fields) = &value else {
        return Err(format!("the body must be a JSON object with {}", names.join(", ")));
    };
    let missing: Vec<&str> = required.iter().copied().filter(|name| !fields.contains_key(*name)).collect();
    let unknown: Vec<&str> = fields.keys().map(String::as_str).filter(|name| !names.contains(name)).collect();
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("missing: {}", missing.join(", ")));
    }
    if !unknown.is_empty() {
        problems.push(format!("unknown: {}", unknown.join(", ")));
    }
    if !problems.is_empty() {
        return Err(format!("{} (the body takes {})", problems.join("; "), names.join(", ")));
    }
    let present = |name: &str| fields.get(name).filter(|value| !value.is_null() || required.contains(&name));
    let is_number = |name: &str| types.iter().any(|(known, kind)| *known == name && *kind == "integer");
    let text_fields = names.iter().copied().filter(|name| !is_number(name));
    let text_fields: Vec<&str> =
        text_fields.filter(|name| present(name).is_some_and(|it| !it.is_string())).collect();
    if !text_fields.is_empty() {
        return Err(format!("{} must be text", text_fields.join(", ")));
    }
    let mut number_fields = names.iter().filter(|name| is_number(name));
    if let Some(name) = number_fields.find(|name| present(name).is_some_and(|it| !it.is_u64())) {
        return Err(format!("{name} must be a whole number"));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

pub(crate) struct QueryParameters<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::from_axum(rejection.status(), rejection.body_text(), BODY_LIMIT)),
        }
    }
}

pub(crate) struct PathParameters<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::from_axum(rejection.status(), rejection.body_text(), BODY_LIMIT)),
        }
    }
}

/// `{platform}/{chat}`: a chat with the owner on the page or in the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnChat {
    pub(crate) platform: Platform,
    pub(crate) id: String,
}

impl OwnChat {
    pub(crate) fn parse(platform: &str, id: String) -> Result<Self, ApiError> {
        let known = Platform::parse(platform).filter(|known| known.as_str() == platform);
        let Some(platform) = known.filter(|known| has_owner_chats(*known)) else {
            return Err(ApiError::not_found("this API serves no chats of this platform"));
        };
        if !is_client_id(&id) {
            return Err(ApiError::bad_request("a chat id has 1 to 64 of the characters A-Z a-z 0-9 _ -"));
        }
        Ok(Self { platform, id })
    }

    /// Authenticated callers act as the owner.
    pub(crate) fn source(&self) -> Source {
        Source {
            user_id: Some("owner".to_owned()),
            user_name: Some("Owner".to_owned()),
            ..Source::new(self.platform, ChatType::Dm, self.id.clone())
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OwnChat {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let PathParameters((platform, id)) =
            PathParameters::<(String, String)>::from_request_parts(parts, state).await?;
        Self::parse(&platform, id)
    }
}

/// `local` is a file, so it has no chats.
fn has_owner_chats(platform: Platform) -> bool {
    platform.peer() == Peer::Owner && platform != Platform::LOCAL
}

/// Whether a client may use this string as an id.
pub(crate) fn is_client_id(id: &str) -> bool {
    (1..=MAX_ID_LENGTH).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_short_plain_ids_only() {
        let longest = "a".repeat(64);
        for id in ["a", "A-b_9", longest.as_str()] {
            assert!(is_client_id(id), "{id}");
        }
        let too_long = "a".repeat(65);
        for id in ["", "a b", "a:b", "ä", "../x", "a\n", too_long.as_str()] {
            assert!(!is_client_id(id), "{id}");
        }
    }

    #[test]
    fn accepts_chats_of_owner_platforms_only() {
        assert!(OwnChat::parse("web", "x".into()).is_ok());
        assert!(OwnChat::parse("terminal", "x".into()).is_ok());
        for platform in ["telegram", "local", "Web", "unknown", ""] {
            assert!(OwnChat::parse(platform, "x".into()).is_err(), "{platform}");
        }
        assert!(OwnChat::parse("web", "a:b".into()).is_err());
    }

    #[test]
    fn source_is_the_owner() {
        let source = OwnChat::parse("web", "x".into()).unwrap().source();
        assert_eq!(source.user_id.as_deref(), Some("owner"));
        assert_eq!(source.chat_id.as_deref(), Some("x"));
    }
}
