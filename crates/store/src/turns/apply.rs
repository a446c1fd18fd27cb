//! Applies the writes of a decision, in order, within one job.

use petasos_core::Millis;
use petasos_core::journal::Write;

use crate::connection::Tx;
use crate::error::Result;

impl Tx<'_> {
    /// `now` is the time of writes that carry none.
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
            Write::AddUsage { key, session, usage } => self.add_usage(key, session, *usage),
            Write::Compact { key, session, compaction, at } => {
                self.compact_transcript(key, session, compaction, *at)
            }
            Write::Enqueue(draft) => self.enqueue_item(draft, now),
            Write::PreviewShown { turn, step, message } => self.preview_shown(*turn, *step, message),
            Write::DropPreview { turn, step } => self.drop_preview(*turn, *step),
            Write::SendAsNew { item, old_preview } => self.send_as_new(*item, *old_preview),
            Write::ClosePreview { turn, step, text } => self.close_preview(*turn, *step, text),
            Write::Sending { item } => self.sending(*item, now),
            Write::PartSent { item, message, thread } => self.part_sent(*item, message, thread.as_deref()),
            Write::Delivered { item, message, at } => self.delivered(*item, message.as_deref(), *at),
            Write::Postpone { item, not_before, doubtful, error } => {
                self.postpone(*item, *not_before, *doubtful, error)
            }
            Write::RetireKey { item } => self.retire_key(*item),
            Write::DeadLetter { item, doubtful, error, at } => {
                self.dead_letter_item(*item, *doubtful, error, *at)
            }
            Write::MarkChatDead { platform, chat_id, reason, at } => {
                self.mark_chat_dead(*platform, chat_id, reason, *at)
            }
            Write::ClearDeadChat { platform, chat_id } => self.mark_chat_alive(*platform, chat_id).map(drop),
            Write::RateLimited(penalty) => self.put_penalty(penalty),
            Write::TopicCreated { platform, chat_id, name, thread, at } => {
                self.put_topic(*platform, chat_id, name, thread, *at)
            }
            Write::TopicRemoved { platform, chat_id, name } => self.drop_topic(*platform, chat_id, name),
            Write::ClearResume { key } => self.clear_resume(key),
        }
    }
}
