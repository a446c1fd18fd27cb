//! The `send_message` tool: a message to another chat.

use schemars::JsonSchema;
use serde::Deserialize;

use super::GatewayCall;
use crate::tools::registry::arguments::required;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const MAX_CHARS: usize = 40_000;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "send_message",
        description: "Sends a message to another chat. Your answers in this chat are delivered automatically: do not send them.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::People,
        runner: Runner::gateway(parse_call),
    }
}

#[derive(Deserialize, JsonSchema)]
struct SendMessageArguments {
    /// list: the chats that can be reached; default send
    action: Option<SendMessageAction>,
    /// platform (its home channel), platform:chat or platform:chat:thread; a chat is an id or a name from the list
    target: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SendMessageAction {
    List,
    Send,
}

fn parse_call(arguments: SendMessageArguments) -> Result<GatewayCall, String> {
    match arguments.action.unwrap_or(SendMessageAction::Send) {
        SendMessageAction::List => return Ok(GatewayCall::ListTargets),
        SendMessageAction::Send => {}
    }
    let to = required(&arguments.target, "target")?.trim().to_owned();
    let text = required(&arguments.message, "message")?.to_owned();
    if to.is_empty() || text.trim().is_empty() {
        return Err("A message needs a target and a text.".to_owned());
    }
    if text.chars().count() > MAX_CHARS {
        return Err(format!("A message has at most {MAX_CHARS} characters."));
    }
    Ok(GatewayCall::Send { to, text })
}
