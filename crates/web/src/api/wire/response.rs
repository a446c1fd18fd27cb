//! Response types of the handlers, besides `Json`.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::openapi::{Operation, Output};

/// JSON with another status than 200.
pub(crate) struct WithStatus<const CODE: u16, T>(pub(crate) T);

pub(crate) type Created<T> = WithStatus<201, T>;
pub(crate) type Accepted<T> = WithStatus<202, T>;

impl<const CODE: u16, T: Serialize> IntoResponse for WithStatus<CODE, T> {
    fn into_response(self) -> Response {
        (StatusCode::from_u16(CODE).unwrap_or_default(), Json(self.0)).into_response()
    }
}

impl<const CODE: u16, T: Serialize + JsonSchema> Output for WithStatus<CODE, T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.success::<T>(CODE);
    }
}

pub(crate) struct WithRunHeaders<T>(pub(crate) HeaderMap, pub(crate) T);

impl<T: IntoResponse> IntoResponse for WithRunHeaders<T> {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl<T: Output> Output for WithRunHeaders<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

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

/// A whole or a streamed answer, as requested.
pub(crate) enum WholeOrStream<T> {
    Whole(WithRunHeaders<Json<T>>),
    Stream(EventStream),
}

impl<T: Serialize> IntoResponse for WholeOrStream<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Whole(whole) => whole.into_response(),
            Self::Stream(stream) => stream.into_response(),
        }
    }
}

impl<T: Serialize + JsonSchema> Output for WholeOrStream<T> {
    fn describe(operation: &mut Operation<'_>) {
        Json::<T>::describe(operation);
        EventStream::describe(operation);
    }
}

/// An object with variable members.
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
