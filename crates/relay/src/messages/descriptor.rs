//! Capabilities of a platform as the connector describes them, with defaults for missing fields.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Value, json};

use crate::MOST_IDENTITIES;
use crate::wire::field;
use crate::wire::field::Object;
use petasos_core::text::Unit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    pub contract_version: u64,
    pub platform: String,
    pub label: String,
    pub max_message_length: usize,
    pub supports_draft_streaming: bool,
    pub supports_edit: bool,
    pub supports_threads: bool,
    pub markdown_dialect: String,
    pub len_unit: Unit,
    pub emoji: String,
    pub platform_hint: String,
    pub pii_safe: bool,
    pub supports_context: bool,
    pub supports_inchannel_continuable: bool,
    pub supports_block_formatting: bool,
    /// Empty: the operations that every connector knows.
    pub supported_ops: Vec<String>,
    /// Seconds for which the connector answers a repeated `requestId` with the stored result. Zero: never. Extension;
    /// other implementations ignore it.
    pub request_memory: u64,
}

pub const LEGACY_OPS: [&str; 4] = ["send", "edit", "typing", "follow_up"];
const DEFAULT_LENGTH: usize = 4096;
const MOST_OPS: usize = 64;

impl Descriptor {
    /// Fills in defaults; `complain` gets the names of missing required keys. `platform`: of the hello that this
    /// answers.
    pub fn read(object: &Object, platform: &str, mut complain: impl FnMut(&'static str)) -> Self {
        for name in REQUIRED {
            if object.get(name).is_none_or(Value::is_null) {
                complain(name);
            }
        }
        let text = |name, otherwise: &str| field::given(object, name).unwrap_or_else(|| otherwise.to_owned());
        let truth = |name, otherwise| object.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        let platform = text("platform", platform);
        Self {
            contract_version: object.get("contract_version").and_then(Value::as_u64).unwrap_or(1),
            label: text("label", &platform),
            platform,
            max_message_length: length(object.get("max_message_length")),
            supports_draft_streaming: truth("supports_draft_streaming", false),
            supports_edit: truth("supports_edit", true),
            supports_threads: truth("supports_threads", false),
            markdown_dialect: field::text(object, "markdown_dialect").unwrap_or_else(|| "plain".to_owned()),
            len_unit: match object.get("len_unit").and_then(Value::as_str) {
                Some("utf16") => Unit::Utf16,
                Some(_) | None => Unit::Chars,
            },
            emoji: text("emoji", "🔌"),
            platform_hint: field::text(object, "platform_hint").unwrap_or_default(),
            pii_safe: truth("pii_safe", false),
            supports_context: truth("supports_context", false),
            supports_inchannel_continuable: truth("supports_inchannel_continuable", false),
            supports_block_formatting: truth("supports_block_formatting", false),
            supported_ops: ops(object),
            request_memory: object.get("request_memory").and_then(Value::as_u64).unwrap_or_default(),
        }
    }

    pub fn object(&self) -> Object {
        let unit = match self.len_unit {
            Unit::Chars => "chars",
            Unit::Utf16 => "utf16",
        };
        let value = json!({
            "contract_version": self.contract_version,
            "platform": self.platform,
            "label": self.label,
            "max_message_length": self.max_message_length,
            "supports_draft_streaming": self.supports_draft_streaming,
            "supports_edit": self.supports_edit,
            "supports_threads": self.supports_threads,
            "markdown_dialect": self.markdown_dialect,
            "len_unit": unit,
            "emoji": self.emoji,
            "platform_hint": self.platform_hint,
            "pii_safe": self.pii_safe,
            "supports_context": self.supports_context,
            "supports_inchannel_continuable": self.supports_inchannel_continuable,
            "supports_block_formatting": self.supports_block_formatting,
            "supported_ops": self.supported_ops,
            "request_memory": self.request_memory,
        });
        value.as_object().cloned().unwrap_or_default()
    }

    /// Whether the platform supports this operation; unknown operations are never sent.
    pub fn supports(&self, op: &str) -> bool {
        if self.supported_ops.is_empty() {
            return LEGACY_OPS.contains(&op);
        }
        self.supported_ops.iter().any(|known| known == op)
    }
}

const REQUIRED: [&str; 9] = [
    "contract_version",
    "platform",
    "label",
    "max_message_length",
    "supports_draft_streaming",
    "supports_edit",
    "supports_threads",
    "markdown_dialect",
    "len_unit",
];

/// Missing, invalid and non-positive values mean the default.
fn length(value: Option<&Value>) -> usize {
    let number = match value {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    // The cast saturates and drops fractions.
    number.map(|number: f64| number as usize).filter(|length| *length > 0).unwrap_or(DEFAULT_LENGTH)
}

fn ops(object: &Object) -> Vec<String> {
    let names = field::list(object, "supported_ops").iter().filter_map(Value::as_str);
    names.filter(|name| !name.is_empty()).take(MOST_OPS).map(ToString::to_string).collect()
}

/// One per platform of a connection. The first is the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descriptors {
    all: Vec<Descriptor>,
}

impl Descriptors {
    /// A repeated platform replaces its descriptor; the first stays first.
    pub fn adopt(&mut self, descriptor: Descriptor) {
        match self.all.iter().position(|known| known.platform == descriptor.platform) {
            Some(at) => self.all[at] = descriptor,
            None if self.all.len() < MOST_IDENTITIES => self.all.push(descriptor),
            None => {}
        }
    }

    pub fn first(&self) -> Option<&Descriptor> {
        self.all.first()
    }

    pub fn of(&self, platform: &str) -> Option<&Descriptor> {
        self.all.iter().find(|known| known.platform == platform).or(self.first())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Descriptor> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn read(value: Value) -> (Descriptor, Vec<&'static str>) {
        let mut missing = vec![];
        let descriptor = Descriptor::read(value.as_object().unwrap(), "discord", |name| missing.push(name));
        (descriptor, missing)
    }

    #[test]
    fn nine_fields_are_enough() {
        let (descriptor, missing) = read(json!({
            "contract_version": 1, "platform": "discord", "label": "Discord", "max_message_length": 2000,
            "supports_draft_streaming": false, "supports_edit": true, "supports_threads": true,
            "markdown_dialect": "discord", "len_unit": "chars",
        }));
        assert!(missing.is_empty());
        assert_eq!((descriptor.max_message_length, descriptor.emoji.as_str()), (2000, "🔌"));
        assert!(descriptor.supports("send") && descriptor.supports("edit") && !descriptor.supports("react"));
        assert!(descriptor.markdown_dialect != "plain" && !descriptor.supports_context);
        assert_eq!(read(Value::Object(descriptor.object())).0, descriptor);
    }

    #[test]
    fn fills_in_and_reports_missing_fields() {
        let (descriptor, missing) = read(json!({}));
        assert_eq!(missing.len(), 9);
        assert_eq!((descriptor.platform.as_str(), descriptor.label.as_str()), ("discord", "discord"));
        assert!(descriptor.supports_edit && !descriptor.supports_threads);
    }

    #[test]
    fn replaces_invalid_lengths_by_default() {
        for (length, want) in [
            (json!(0), 4096),
            (json!(-5), 4096),
            (json!("abc"), 4096),
            (json!(null), 4096),
            (json!([]), 4096),
            (json!("300"), 300),
            (json!(300.9), 300),
            (json!(1000), 1000),
        ] {
            assert_eq!(read(json!({"max_message_length": length})).0.max_message_length, want, "{length}");
        }
    }

    #[test]
    fn uses_only_listed_operations() {
        let ops = |value| read(json!({"supported_ops": value})).0;
        assert!(ops(json!(["send", "", 5, "react"])).supports("react"));
        assert!(!ops(json!(["send"])).supports("edit"));
        for legacy in [json!(null), json!("send"), json!([]), json!([5, ""])] {
            assert!(ops(legacy).supports("typing"));
        }
    }

    #[test]
    fn first_descriptor_stays_the_default() {
        let mut all = Descriptors::default();
        for platform in ["discord", "telegram", "discord"] {
            all.adopt(read(json!({"platform": platform, "max_message_length": 10})).0);
        }
        assert_eq!(all.first().unwrap().platform, "discord");
        assert_eq!(all.of("telegram").unwrap().platform, "telegram");
        assert_eq!(all.of("signal").unwrap().platform, "discord");
        assert_eq!(all.iter().count(), 2);
        (0..100).for_each(|n| all.adopt(read(json!({"platform": n.to_string()})).0));
        assert_eq!(all.iter().count(), MOST_IDENTITIES);
    }
}
