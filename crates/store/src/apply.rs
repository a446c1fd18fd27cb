//! Carrying out a decision's writes, in order, inside one job: all of them or none.

use petasos_core::Millis;
use petasos_core::journal::Write;

use crate::error::Result;
use crate::group::Tx;

impl Tx<'_> {
    /// `now` dates what the writes themselves do not date.
    pub fn apply(&self, writes: &[Write], now: Millis) -> Result<()> {
        writes.iter().try_for_each(|write| self.apply_one(write, now))
    }

    fn apply_one(&self, write: &Write, now: Millis) -> Result<()> {
        match write {
            Write::PutTurn(turn) => self.put_turn(turn),
            Write::EndTurn { turn, outcome, at } => self.end_turn(*turn, *outcome, *at),
            Write::ClaimInbox { inbox, turn } => inbox.iter().try_for_each(|id| self.claim(*id, *turn, now)),
            Write::SettleInbox { inbox, outcome, at } => {
                inbox.iter().try_for_each(|id| self.settle(*id, *outcome, *at))
            }
            Write::Append { session, message } => self.append(session, message).map(drop),
            Write::Spend { key, session, bill } => self.spend(key, session, *bill),
            Write::Relieve { key, session, relief, at } => self.relieve(key, session, relief, *at),
            Write::Owe(draft) => self.owe(draft, now),
            Write::PreviewShown { turn, step, message } => self.preview_shown(*turn, *step, message),
            Write::DropPreview { turn, step } => self.drop_preview(*turn, *step),
            Write::SendAnew { item, left } => self.send_anew(*item, *left),
            Write::ClosePreview { turn, step, text } => self.close_preview(*turn, *step, text),
            Write::Sending { item } => self.sending(*item, now),
            Write::PartSent { item, message, thread } => self.part_sent(*item, message, thread.as_deref()),
            Write::Delivered { item, message, at } => self.delivered(*item, message.as_deref(), *at),
            Write::Postpone { item, not_before, doubtful, error } => {
                self.postpone(*item, *not_before, *doubtful, error)
            }
            Write::KeySpent { item } => self.spend_key(*item),
            Write::Bury { item, doubtful, error, at } => self.bury(*item, *doubtful, error, *at),
            Write::ChatDead { platform, chat_id, reason, at } => {
                self.mark_chat_dead(*platform, chat_id, reason, *at)
            }
            Write::ChatAlive { platform, chat_id } => self.mark_chat_alive(*platform, chat_id).map(drop),
            Write::RateLimited(penalty) => self.put_penalty(penalty),
            Write::TopicMade { platform, chat_id, name, thread, at } => {
                self.put_topic(*platform, chat_id, name, thread, *at)
            }
            Write::TopicGone { platform, chat_id, name } => self.drop_topic(*platform, chat_id, name),
            Write::ClearResume { key } => self.clear_resume(key),
        }
    }
}
