//! Claims the head of a lane for sending.

use petasos_core::dead_chat::SendPermission;
use petasos_core::journal::Write;
use petasos_core::lane;
use petasos_core::outbox::{Item, State};
use petasos_core::{LaneId, Millis};

use crate::connection::Tx;
use crate::error::Result;

/// Head of a lane, in its state before the claim.
#[derive(Debug, Default)]
pub struct LaneClaim {
    pub head: Option<Item>,
    /// The chat is dead, and this send probes it.
    pub probing: bool,
    /// Items given up because their chat is dead.
    pub dead_lettered: usize,
}

impl Tx<'_> {
    /// Marks the head as being sent if it is due. Items for a dead chat are dead-lettered here and nowhere else.
    pub fn claim_head(&self, lane: &LaneId, now: Millis) -> Result<LaneClaim> {
        let mut claimed = LaneClaim { head: self.due_of_lane(lane, 1)?.pop(), ..LaneClaim::default() };
        let ready = |item: &&Item| item.state == State::Due && lane::due_at(item, now) <= now;
        let Some(item) = claimed.head.as_ref().filter(ready) else { return Ok(claimed) };
        let platform = lane.platform;
        let chat = lane.chat.as_str();
        if let Some(dead) = self.dead_chat(platform, chat)? {
            match dead.permission(item, now) {
                SendPermission::Blocked => {
                    let dead_lettered = self.dead_letter_lane(lane, &dead.error_text(), now)?;
                    return Ok(LaneClaim { dead_lettered, ..LaneClaim::default() });
                }
                SendPermission::Probe => self.probe_chat(platform, chat, now)?,
                SendPermission::ProbePending => {}
            }
            claimed.probing = true;
        }
        self.apply(&[Write::Sending { item: item.id }], now)?;
        Ok(claimed)
    }
}
