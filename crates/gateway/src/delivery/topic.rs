//! Forum topics addressed by name: looked up, or created once.
//!
//! The id of a topic is stored before anything is sent there. A crash between creation and commit leaves an empty topic, and
//! the next process creates another.

use std::time::Duration;

use petasos_core::Fault;
use petasos_core::journal::Write;
use petasos_core::lane::LaneAction;
use petasos_core::outbox::Item;

use super::lane::Lane;
use super::send::LaneStep;
use crate::clock;
use crate::runtime::commit::Commit;

/// Retention deletes unused topics, so a use is recorded this often.
const RECORD_USE_EVERY: Duration = Duration::from_secs(24 * 3600);

impl Lane {
    /// Replaces a topic name in the item's route by the topic's id and returns the name. If the topic may not be created, the item
    /// goes to the chat itself.
    pub(super) async fn resolve_topic(&mut self, item: &mut Item) -> Result<Option<String>, LaneStep> {
        let Some(name) = self.adapter.topic_name(&item.draft.route) else { return Ok(None) };
        let platform = self.adapter.platform();
        let chat = item.draft.route.chat_id.clone();
        let chat_id = chat.clone();
        let wanted = name.clone();
        let known = self.context.db.read(move |reader| reader.topic(platform, &chat_id, &wanted)).await;
        let known = known.map_err(|error| LaneStep::WaitUntil(self.store_refused(&error)))?;
        let now = clock::now();
        let thread = match known {
            Some((thread, used)) if now.since(used) < RECORD_USE_EVERY => {
                item.draft.route.thread_id = Some(thread);
                return Ok(Some(name));
            }
            Some((thread, _)) => Some(thread),
            None => match self.adapter.create_topic(&item.draft.route, &name).await {
                Ok(thread) => thread,
                Err(error) if error.fault() == Fault::Refused => {
                    tracing::warn!(lane = %self.name, %error, "cannot create the topic; sending to the chat itself");
                    None
                }
                Err(error) => return Err(self.on_send_error(item, &LaneAction::Wait, &error).await),
            },
        };
        if let Some(thread) = thread.clone() {
            let used = Write::TopicCreated { platform, chat_id: chat, name: name.clone(), thread, at: now };
            self.commit(Commit::Topic, vec![used]).await;
        }
        item.draft.route.thread_id = thread;
        Ok(Some(name))
    }

    /// Deletes the stored id, so that the next message creates the topic again.
    pub(super) async fn forget_topic(&self, item: &Item, name: &str) {
        let platform = self.adapter.platform();
        let chat_id = item.draft.route.chat_id.clone();
        self.commit(Commit::Topic, vec![Write::TopicRemoved { platform, chat_id, name: name.to_owned() }])
            .await;
    }
}
