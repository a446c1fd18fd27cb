//! The parameters of one request, from the query, a form or a JSON body. Parsing is as lenient as the real service:
//! numbers may be strings, objects may be JSON inside a string.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::error::ServiceError;
use crate::server::files::{self, MultipartForm, Upload};

/// The fields, and the files of a form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(pub Map<String, Value>, pub Vec<Upload>);

impl Params {
    pub(crate) fn parse(query: &str, content_type: &str, body: &Bytes) -> Result<Self, ServiceError> {
        let mut params = Map::new();
        form(query, &mut params);
        if content_type.starts_with("application/x-www-form-urlencoded") {
            form(&String::from_utf8_lossy(body), &mut params);
            return Ok(Self(params, Vec::new()));
        }
        if body.is_empty() {
            return Ok(Self(params, Vec::new()));
        }
        if let Some(MultipartForm { fields, files }) = files::parse_form(content_type, body) {
            params.extend(fields.into_iter().map(|(name, value)| (name, Value::String(value))));
            return Ok(Self(params, files));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => params.extend(object),
            Ok(_) | Err(_) => return Err(ServiceError::bad_request("can't parse JSON object")),
        }
        Ok(Self(params, Vec::new()))
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        as_int(self.get(name)?)
    }

    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true") || text == "1",
            Some(Value::Number(number)) => number.as_i64() == Some(1),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
        }
    }

    /// An object or array, given as such or as JSON in a string.
    #[must_use]
    pub fn json(&self, name: &str) -> Option<Value> {
        match self.get(name)? {
            Value::String(text) => serde_json::from_str(text).ok(),
            value => Some(value.clone()),
        }
    }

    pub(crate) fn chat(&self) -> Result<i64, ServiceError> {
        if self.get("chat_id").is_none() {
            return Err(ServiceError::bad_request("chat_id is empty"));
        }
        self.int("chat_id").ok_or_else(|| ServiceError::bad_request("chat not found"))
    }
}

pub(crate) fn as_int(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn form(text: &str, into: &mut Map<String, Value>) {
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        into.insert(decoded(name), Value::String(decoded(value)));
    }
}

pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match (first, escaped(tail)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn escaped(tail: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::Params;

    const FORM: &str = "application/x-www-form-urlencoded";

    #[test]
    fn parses_query_form_and_json_alike() {
        let want = ("7", "a&b ü+%");
        for (query, kind, body) in [
            ("chat_id=7&text=a%26b+%C3%BC%2B%", "", ""),
            ("", FORM, "chat_id=7&text=a%26b%20%c3%bc%2b%"),
            ("chat_id=7", "application/json", r#"{"text":"a&b ü+%"}"#),
        ] {
            let params = Params::parse(query, kind, &Bytes::from_static(body.as_bytes())).unwrap();
            assert_eq!((params.str("chat_id").unwrap(), params.str("text").unwrap()), want);
            assert_eq!(params.chat(), Ok(7));
        }
    }

    #[test]
    fn is_as_lenient_as_the_real_service() {
        let body = json!({"markup": "{\"a\":1}", "list": [1], "yes": "True", "no": 0, "null": null});
        let params = Params::parse("", "application/json", &body.to_string().into()).unwrap();
        assert_eq!(params.json("markup"), Some(json!({"a": 1})));
        assert_eq!(params.json("list"), Some(json!([1])));
        assert!(params.flag("yes") && !params.flag("no") && !params.flag("null"));
        assert!(params.get("null").is_none());
        assert!(Params::parse("", "application/json", &Bytes::from_static(b"[1]")).is_err());
        assert!(Params::parse("", "application/json", &Bytes::from_static(b"{")).is_err());
    }
}
