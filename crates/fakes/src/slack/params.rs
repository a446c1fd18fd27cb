//! The parameters of one request: from the query, a form, or JSON where the method accepts it.

use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(pub Map<String, Value>);

impl Params {
    /// `json`: whether this method accepts a JSON body. Like the real service, other methods ignore it.
    pub(crate) fn parse(query: &str, content_type: &str, body: &[u8], json: bool) -> Self {
        let mut params = Map::new();
        form(query, &mut params);
        if content_type.starts_with("application/x-www-form-urlencoded") {
            form(&String::from_utf8_lossy(body), &mut params);
        } else if json && let Ok(Value::Object(object)) = serde_json::from_slice(body) {
            params.extend(object);
        }
        Self(params)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true" || text == "1",
            Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => false,
        }
    }

    /// The channel, under either name.
    #[must_use]
    pub fn channel(&self) -> Option<&str> {
        self.str("channel").or_else(|| self.str("channel_id"))
    }
}

fn form(text: &str, into: &mut Map<String, Value>) {
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        into.insert(decoded(name), Value::String(decoded(value)));
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
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

#[cfg(test)]
mod tests {
    use super::Params;

    #[test]
    fn reads_json_only_for_methods_that_accept_it() {
        let read = |json| Params::parse("a=1%2B1", "application/json", br#"{"b":"2"}"#, json);
        assert_eq!((read(true).str("a"), read(true).str("b")), (Some("1+1"), Some("2")));
        assert_eq!((read(false).str("a"), read(false).str("b")), (Some("1+1"), None));
    }
}
