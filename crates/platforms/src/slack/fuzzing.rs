//! Parses bytes as a frame of Socket Mode.

use petasos_core::Platform;

use super::Config;
use super::inbound::filter::MessageFilter;
use super::inbound::parse::{self, ParseContext};
use super::rest::api::{Token, TokenKind};
use super::wire::SocketFrame;
use super::workspaces::{WorkspaceBot, Workspaces};
use crate::Secret;

/// Whether it became an event.
pub fn frame(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let _id = parse::envelope_id(&text);
    let Ok(frame) = serde_json::from_str::<SocketFrame>(&text) else { return false };
    let Some(platform) = Platform::parse("slack") else { return false };
    let config = Config::new("xapp-1-A1-x", "xoxb-1");
    let filter = MessageFilter::new(&config);
    let token = Token { secret: Secret::new("xoxb-1"), kind: TokenKind::Bot };
    let bot = WorkspaceBot { team: "T1".into(), name: None, bot_user: "U1BOT".into(), bot_id: None, token };
    let workspaces = Workspaces(vec![bot]);
    let is_own_thread = |_: &str, _: &str| false;
    let context = ParseContext {
        platform,
        config: &config,
        filter: &filter,
        workspaces: &workspaces,
        is_own_thread: &is_own_thread,
    };
    parse::envelope(&frame, &context).is_ok_and(|event| event.is_some())
}
