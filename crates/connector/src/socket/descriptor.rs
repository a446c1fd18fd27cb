//! Describes a platform to gateways.

use std::time::Duration;

use petasos_core::capability::Dialect;
use petasos_platforms::Adapter;
use petasos_relay::Descriptor;

/// Supported operations; others fail.
const OPS: [&str; 7] = ["send", "follow_up", "edit", "typing", "delete", "get_chat_info", "send_media"];

/// `request_memory`: how long the connector recognises a repeated request.
pub(crate) fn describe(adapter: &Adapter, request_memory: Duration) -> Descriptor {
    let capabilities = adapter.capabilities();
    let platform = adapter.platform();
    Descriptor {
        contract_version: 1,
        platform: platform.as_str().to_owned(),
        label: capabilities.label.clone(),
        max_message_length: capabilities.max_message,
        supports_draft_streaming: false,
        supports_edit: capabilities.edit,
        supports_threads: true,
        markdown_dialect: dialect(capabilities.dialect).to_owned(),
        len_unit: capabilities.unit,
        emoji: "🔌".to_owned(),
        platform_hint: capabilities.hint.clone(),
        pii_safe: false,
        supports_context: false,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: OPS
            .into_iter()
            .filter(|op| match *op {
                "edit" => capabilities.edit,
                "typing" => capabilities.typing,
                "send_media" => capabilities.files.is_some(),
                _always => true,
            })
            .map(str::to_owned)
            .collect(),
        request_memory: request_memory.as_secs(),
    }
}

const fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Plain => "plain",
        Dialect::Markdown => "markdown",
        Dialect::MarkdownV2 => "markdown_v2",
        Dialect::Discord => "discord",
        Dialect::Mrkdwn => "mrkdwn",
        Dialect::Html => "html",
    }
}
