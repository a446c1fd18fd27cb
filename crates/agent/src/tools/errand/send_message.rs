//! `send_message`: a message to another chat.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Errand;
use crate::tools::arguments::needed;
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const LONGEST: usize = 40_000;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "send_message",
        description: "Sends a message to a chat other than this one. Your answers here are delivered by themselves: do not send them.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        reach: Reach::People,
        runner: Runner::errand(read),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// list: the places that can be reached; default send
    action: Option<Action>,
    /// platform (its home channel), platform:chat or platform:chat:thread; a chat is an id or a name from the list
    target: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Send,
}

fn read(arguments: Arguments) -> Result<Errand, String> {
    match arguments.action.unwrap_or(Action::Send) {
        Action::List => return Ok(Errand::Places),
        Action::Send => {}
    }
    let to = needed(&arguments.target, "target")?.trim().to_owned();
    let text = needed(&arguments.message, "message")?.to_owned();
    if to.is_empty() || text.trim().is_empty() {
        return Err("A message needs a target and a text.".to_owned());
    }
    if text.chars().count() > LONGEST {
        return Err(format!("A message has at most {LONGEST} characters."));
    }
    Ok(Errand::Send { to, text })
}
