//! Topics that are asked for by name. Telegram makes a new one each time, so what was made is remembered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::json;

use super::send::id;
use super::{Error, Telegram};

/// Topics that are remembered; of more the oldest are forgotten.
const MOST: usize = 500;
/// Longest name of a topic, in characters.
const LONGEST_NAME: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    threads: HashMap<(String, String), String>,
    order: VecDeque<(String, String)>,
}

#[derive(Deserialize)]
struct Made {
    message_thread_id: i64,
}

impl Telegram {
    /// One try; two who ask for a new name at the same time may get a topic each.
    pub async fn ensure_topic(&self, chat: &str, name: &str) -> Result<String, Error> {
        let name: String = name.trim().chars().take(LONGEST_NAME).collect();
        let key = (chat.to_owned(), name);
        if let Some(known) = self.topics.get(&key) {
            return Ok(known);
        }
        let parameters = json!({ "chat_id": id(chat), "name": key.1 });
        let made: Made = self.talk.call("createForumTopic", &parameters, self.config.request_timeout).await?;
        let thread = made.message_thread_id.to_string();
        self.topics.put(key, thread.clone());
        Ok(thread)
    }
}

impl Topics {
    fn get(&self, key: &(String, String)) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).threads.get(key).cloned()
    }

    fn put(&self, key: (String, String), thread: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.threads.insert(key.clone(), thread).is_none() {
            known.order.push_back(key);
        }
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.threads.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_topics_are_remembered() {
        let topics = Topics::default();
        let key = |n: usize| ("7".to_owned(), n.to_string());
        for n in 0..=MOST {
            topics.put(key(n), n.to_string());
        }
        assert_eq!((topics.get(&key(0)), topics.get(&key(1))), (None, Some("1".to_owned())));
    }
}
