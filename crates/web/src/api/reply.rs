//! What handlers return, besides `Json`.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::openapi::{Operation, Output};

/// JSON with another status than 200.
pub(crate) struct Status<const CODE: u16, T>(pub(crate) T);

pub(crate) type Created<T> = Status<201, T>;
pub(crate) type Accepted<T> = Status<202, T>;

impl<const CODE: u16, T: Serialize> IntoResponse for Status<CODE, T> {
    fn into_response(self) -> Response {
        (StatusCode::from_u16(CODE).unwrap_or_default(), Json(self.0)).into_response()
    }
}

impl<const CODE: u16, T: Serialize + JsonSchema> Output for Status<CODE, T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.success::<T>(CODE);
    }
}

/// With the headers by which a client finds its run again.
pub(crate) struct Named<T>(pub(crate) HeaderMap, pub(crate) T);

impl<T: IntoResponse> IntoResponse for Named<T> {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl<T: Output> Output for Named<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// Server-sent events.
pub(crate) struct EventStream(pub(crate) Response);

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Output for EventStream {
    fn describe(operation: &mut Operation<'_>) {
        operation.stream();
        operation.error(502, "The agent has no answer");
    }
}

/// A whole answer, or one that is streamed, as the client asked for.
pub(crate) enum Reply<T> {
    Whole(Named<Json<T>>),
    Stream(EventStream),
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Whole(whole) => whole.into_response(),
            Self::Stream(stream) => stream.into_response(),
        }
    }
}

impl<T: Serialize + JsonSchema> Output for Reply<T> {
    fn describe(operation: &mut Operation<'_>) {
        Json::<T>::describe(operation);
        EventStream::describe(operation);
    }
}

/// An object whose members depend on what there is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JsonObject(Map<String, Value>);

impl From<Value> for JsonObject {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(members) => Self(members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Self(Map::new())
            }
        }
    }
}
