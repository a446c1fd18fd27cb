//! Topics that are asked for by name: found, or made once.
//!
//! Owns nothing: which topic has which id is in the store, on disk before anything is sent there. A topic that is made
//! in the moment of a crash is not known to the next process, which makes another; nothing was said in the first.

use std::time::Duration;

use petasos_core::Fault;
use petasos_core::journal::Write;
use petasos_core::lane::Act;
use petasos_core::outbox::Item;

use super::lane::Lane;
use super::send::Next;
use crate::clock;
use crate::runtime::commit::Commit;

/// Retention forgets unused topics: a use is noted this often.
const NOTED_EVERY: Duration = Duration::from_secs(24 * 3600);

impl Lane {
    /// Puts the id in the place of a topic's name; gives the name. A topic that may not be made is no reason to keep
    /// quiet: what is said goes to the chat itself, as it does when a topic is gone.
    pub(super) async fn find_topic(&mut self, item: &mut Item) -> Result<Option<String>, Next> {
        let Some(name) = self.adapter.topic_name(&item.draft.route) else { return Ok(None) };
        let (platform, chat) = (self.adapter.platform(), item.draft.route.chat_id.clone());
        let (of, asked) = (chat.clone(), name.clone());
        let known = self.outward.db.read(move |reader| reader.topic(platform, &of, &asked)).await;
        let known = known.map_err(|error| Next::Wait(self.store_refused(&error)))?;
        let now = clock::now();
        let thread = match known {
            Some((thread, used)) if now.since(used) < NOTED_EVERY => {
                item.draft.route.thread_id = Some(thread);
                return Ok(Some(name));
            }
            Some((thread, _)) => Some(thread),
            None => match self.adapter.make_topic(&item.draft.route, &name).await {
                Ok(thread) => thread,
                Err(error) if error.fault() == Fault::Refused => {
                    tracing::warn!(lane = %self.name, %error, "a topic cannot be made; the chat itself is told");
                    None
                }
                Err(error) => return Err(self.failed(item, &Act::Hold, &error).await),
            },
        };
        if let Some(thread) = thread.clone() {
            let used = Write::TopicMade { platform, chat_id: chat, name: name.clone(), thread, at: now };
            self.commit(Commit::Topic, vec![used]).await;
        }
        item.draft.route.thread_id = thread;
        Ok(Some(name))
    }

    /// The next message makes it anew.
    pub(super) async fn topic_gone(&self, item: &Item, name: &str) {
        let (platform, chat_id) = (self.adapter.platform(), item.draft.route.chat_id.clone());
        self.commit(Commit::Topic, vec![Write::TopicGone { platform, chat_id, name: name.to_owned() }]).await;
    }
}
