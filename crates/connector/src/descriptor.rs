//! What a gateway is told of a platform.

use petasos_core::capability::Dialect;
use petasos_platforms::Adapter;
use petasos_relay::Descriptor;

use crate::requests::MEMORY;

/// What can be asked for through us. Anything else is answered with a failure.
const OPS: [&str; 7] = ["send", "follow_up", "edit", "typing", "delete", "get_chat_info", "send_media"];

pub(crate) fn of(adapter: &Adapter) -> Descriptor {
    let can = adapter.capabilities();
    let platform = adapter.platform();
    Descriptor {
        contract_version: 1,
        platform: platform.as_str().to_owned(),
        label: can.label.clone(),
        max_message_length: can.max_message,
        supports_draft_streaming: false,
        supports_edit: can.edit,
        supports_threads: true,
        markdown_dialect: dialect(can.dialect).to_owned(),
        len_unit: can.unit,
        emoji: "🔌".to_owned(),
        platform_hint: can.hint.clone(),
        pii_safe: false,
        supports_context: false,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: OPS
            .into_iter()
            .filter(|op| match *op {
                "edit" => can.edit,
                "typing" => can.typing,
                "send_media" => can.files.is_some(),
                _always => true,
            })
            .map(str::to_owned)
            .collect(),
        request_memory: MEMORY.as_secs(),
    }
}

/// What is written in it we mark up the platform's way.
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
