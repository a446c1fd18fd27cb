//! Named topics. Creation is not idempotent, so the caller stores the id.

use petasos_core::Route;
use serde::Deserialize;
use serde_json::json;

use super::send::id;
use super::{Error, Telegram};

/// In characters.
const MAX_NAME: usize = 128;

#[derive(Deserialize)]
struct CreatedTopic {
    message_thread_id: i64,
}

/// The topic name in a route; ids are numbers.
pub(super) fn name(to: &Route) -> Option<String> {
    let thread = to.thread_id.as_deref()?.trim();
    let named = !thread.is_empty() && thread.parse::<i64>().is_err();
    named.then(|| thread.chars().take(MAX_NAME).collect())
}

impl Telegram {
    /// One attempt; every call creates another topic.
    pub async fn create_topic(&self, chat: &str, name: &str) -> Result<String, Error> {
        let parameters = json!({ "chat_id": id(chat), "name": name });
        let created: CreatedTopic =
            self.api.call("createForumTopic", &parameters, self.config.request_timeout).await?;
        Ok(created.message_thread_id.to_string())
    }

    pub fn topic_name(&self, to: &Route) -> Option<String> {
        name(to)
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::{Platform, Route};

    use super::*;

    #[test]
    fn treats_non_numeric_threads_as_topic_names() {
        let long = "x".repeat(200);
        for (thread, want) in [
            (None, None),
            (Some("7"), None),
            (Some("-7"), None),
            (Some(" "), None),
            (Some(" Deploys "), Some("Deploys")),
            (Some(long.as_str()), Some(&long[..MAX_NAME])),
        ] {
            let platform = Platform::parse("telegram").expect("known");
            let to = Route { thread_id: thread.map(str::to_owned), ..Route::to_home(platform) };
            assert_eq!(name(&to).as_deref(), want, "{thread:?}");
        }
    }
}
