//! Parts of a request, checked before a handler sees them.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use petasos_core::message::ChatType;
use petasos_core::{Platform, Source};
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

const ID_LIMIT: usize = 64;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(Refusal::from_axum(rejection.status(), rejection.body_text())),
        }
    }
}

/// The parameters after `?`.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Refusal::from_axum(rejection.status(), rejection.body_text())),
        }
    }
}

/// The parameters in the path.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(Refusal::from_axum(rejection.status(), rejection.body_text())),
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
    pub(crate) fn parse(platform: &str, id: String) -> Result<Self, Refusal> {
        let platform = match platform {
            "web" | "terminal" => Platform::parse(platform),
            _ => None,
        };
        let Some(platform) = platform else {
            return Err(Refusal::not_found("chats of this platform are not held here"));
        };
        if !is_id(&id) {
            return Err(Refusal::bad_request("a chat id has 1 to 64 of the characters A-Z a-z 0-9 _ -"));
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
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
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
