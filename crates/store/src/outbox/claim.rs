//! Taking the first item of a lane to send it.

use petasos_core::dead::Passage;
use petasos_core::journal::Write;
use petasos_core::lane;
use petasos_core::outbox::{Item, State};
use petasos_core::{LaneId, Millis};

use crate::error::Result;
use crate::group::Tx;

/// The first item of a lane, as it was before it was marked.
#[derive(Debug, Default)]
pub struct Claimed {
    pub head: Option<Item>,
    /// It goes to a chat that refused us, to see whether it still does.
    pub probing: bool,
    /// Items that were given up, because their chat is dead.
    pub buried: usize,
}

impl Tx<'_> {
    /// What may leave now is marked as being sent; what is owed to a dead chat is given up here and nowhere else.
    pub fn claim_head(&self, lane: &LaneId, now: Millis) -> Result<Claimed> {
        let mut claimed = Claimed { head: self.due_of_lane(lane, 1)?.pop(), ..Claimed::default() };
        let ready = |item: &&Item| item.state == State::Due && lane::due_at(item, now) <= now;
        let Some(item) = claimed.head.as_ref().filter(ready) else { return Ok(claimed) };
        let (platform, chat) = (lane.platform, lane.chat.as_str());
        if let Some(dead) = self.dead_chat(platform, chat)? {
            match dead.passage(item, now) {
                Passage::Barred => {
                    let buried = self.bury_lane(lane, &dead.words(), now)?;
                    return Ok(Claimed { buried, ..Claimed::default() });
                }
                Passage::Probe => self.probe_chat(platform, chat, now)?,
                Passage::UnderWay => {}
            }
            claimed.probing = true;
        }
        self.apply(&[Write::Sending { item: item.id }], now)?;
        Ok(claimed)
    }
}
