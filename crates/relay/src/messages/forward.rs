//! A platform request forwarded by the connector, which has verified and answered it and removed its secrets.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::wire::field;
use crate::wire::frame::Malformed;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forward {
    pub platform: String,
    pub bot_id: String,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub profile: Option<String>,
}

impl Forward {
    pub fn read(value: &Value) -> Result<Self, Malformed> {
        let forward = value.as_object().ok_or(Malformed::NotAnObject)?;
        let text = |name| field::text(forward, name).unwrap_or_default();
        Ok(Self {
            platform: text("platform"),
            bot_id: text("botId"),
            method: text("method"),
            path: text("path"),
            headers: field::list(forward, "headers").iter().filter_map(header).collect(),
            body: STANDARD.decode(text("bodyB64")).unwrap_or_default(),
            profile: field::given(forward, "profile"),
        })
    }

    pub fn value(&self) -> Value {
        let mut value = json!({
            "platform": self.platform, "botId": self.bot_id, "method": self.method, "path": self.path,
            "headers": self.headers, "bodyB64": STANDARD.encode(&self.body),
        });
        if let Some(profile) = &self.profile {
            value["profile"] = profile.as_str().into();
        }
        value
    }
}

fn header(pair: &Value) -> Option<(String, String)> {
    match pair.as_array()?.as_slice() {
        [name, value] => Some((field::scalar(name)?, field::scalar(value).unwrap_or_default())),
        _odd => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn forwards_survive_the_wire() {
        let told = Forward {
            platform: "discord".into(),
            body: b"{}".to_vec(),
            headers: vec![("a".into(), "b".into()), ("a".into(), "c".into())],
            ..Forward::default()
        };
        assert_eq!(Forward::read(&told.value()), Ok(told));
        let odd = json!({"headers": [["a"], ["b", 5], ["c", "d", "e"], 7], "bodyB64": "%%", "platform": 9});
        let read = Forward::read(&odd).unwrap();
        assert_eq!((read.headers, read.body.len()), (vec![("b".into(), "5".into())], 0));
        assert_eq!(Forward::read(&Value::Null), Err(Malformed::NotAnObject));
    }
}
