//! Parts of a request, checked before a handler sees them.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use petasos_core::message::ChatType;
use petasos_core::{Platform, Source};
use petasos_platforms::body_budget::Exhausted;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connection::is_caused_by;
use crate::error::ApiError;

const ID_LIMIT: usize = 64;

/// A JSON body with all members of its type and no others; an `Option` may be left out.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + JsonSchema> FromRequest<S> for Body<T> {
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
                return Err(ApiError::from_axum(rejection.status(), message));
            }
        };
        shaped(value).map(Self).map_err(ApiError::bad_request)
    }
}

/// Says everything that is wrong with the members at once. All of them are texts or whole numbers.
fn shaped<T: DeserializeOwned + JsonSchema>(value: Value) -> Result<T, String> {
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
    let mut wrong = Vec::new();
    if !missing.is_empty() {
        wrong.push(format!("missing: {}", missing.join(", ")));
    }
    if !unknown.is_empty() {
        wrong.push(format!("unknown: {}", unknown.join(", ")));
    }
    if !wrong.is_empty() {
        return Err(format!("{} (the body takes {})", wrong.join("; "), names.join(", ")));
    }
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null() || required.contains(&name));
    let is_number = |name: &str| types.iter().any(|(known, kind)| *known == name && *kind == "integer");
    let texts = names.iter().copied().filter(|name| !is_number(name));
    let texts: Vec<&str> = texts.filter(|name| given(name).is_some_and(|it| !it.is_string())).collect();
    if !texts.is_empty() {
        return Err(format!("{} must be text", texts.join(", ")));
    }
    let mut numbers = names.iter().filter(|name| is_number(name));
    if let Some(name) = numbers.find(|name| given(name).is_some_and(|it| !it.is_u64())) {
        return Err(format!("{name} must be a whole number"));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The parameters after `?`.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::from_axum(rejection.status(), rejection.body_text())),
        }
    }
}

/// The parameters in the path.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::from_axum(rejection.status(), rejection.body_text())),
        }
    }
}

/// `{platform}/{chat}`: a conversation that is held through this API.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chat {
    pub(crate) platform: Platform,
    pub(crate) id: String,
}

impl Chat {
    pub(crate) fn parse(platform: &str, id: String) -> Result<Self, ApiError> {
        let platform = match platform {
            "web" | "terminal" => Platform::parse(platform),
            _ => None,
        };
        let Some(platform) = platform else {
            return Err(ApiError::not_found("chats of this platform are not held here"));
        };
        if !is_id(&id) {
            return Err(ApiError::bad_request("a chat id has 1 to 64 of the characters A-Z a-z 0-9 _ -"));
        }
        Ok(Self { platform, id })
    }

    /// Whoever came in through either door is the owner.
    pub(crate) fn source(&self) -> Source {
        Source {
            user_id: Some("owner".to_owned()),
            user_name: Some("Owner".to_owned()),
            ..Source::new(self.platform, ChatType::Dm, self.id.clone())
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Chat {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Named((platform, id)) = Named::<(String, String)>::from_request_parts(parts, state).await?;
        Self::parse(&platform, id)
    }
}

/// An id made by a client.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=ID_LIMIT).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_plain() {
        let longest = "a".repeat(64);
        for id in ["a", "A-b_9", longest.as_str()] {
            assert!(is_id(id), "{id}");
        }
        let too_long = "a".repeat(65);
        for id in ["", "a b", "a:b", "ä", "../x", "a\n", too_long.as_str()] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn only_our_own_platforms_have_chats_here() {
        assert!(Chat::parse("web", "x".into()).is_ok());
        assert!(Chat::parse("terminal", "x".into()).is_ok());
        for platform in ["telegram", "Web", "nobody", ""] {
            assert!(Chat::parse(platform, "x".into()).is_err(), "{platform}");
        }
        assert!(Chat::parse("web", "a:b".into()).is_err());
    }

    #[test]
    fn whoever_comes_in_here_is_the_owner() {
        let source = Chat::parse("web", "x".into()).unwrap().source();
        assert_eq!(source.user_id.as_deref(), Some("owner"));
        assert_eq!(source.chat_id.as_deref(), Some("x"));
    }
}
