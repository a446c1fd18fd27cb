//! Topics that are asked for by name. Telegram makes a new one each time, so whoever asks keeps its id.

use petasos_core::Route;
use serde::Deserialize;
use serde_json::json;

use super::send::id;
use super::{Error, Telegram};

/// Longest name of a topic, in characters.
const LONGEST_NAME: usize = 128;

#[derive(Deserialize)]
struct Made {
    message_thread_id: i64,
}

/// The name of the topic that a way leads to; ids are numbers.
pub(super) fn name(to: &Route) -> Option<String> {
    let thread = to.thread_id.as_deref()?.trim();
    let named = !thread.is_empty() && thread.parse::<i64>().is_err();
    named.then(|| thread.chars().take(LONGEST_NAME).collect())
}

impl Telegram {
    /// One try; each makes another topic, and gives its id.
    pub async fn make_topic(&self, chat: &str, name: &str) -> Result<String, Error> {
        let parameters = json!({ "chat_id": id(chat), "name": name });
        let made: Made = self.talk.call("createForumTopic", &parameters, self.config.request_timeout).await?;
        Ok(made.message_thread_id.to_string())
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
    fn a_thread_that_is_no_number_is_a_name() {
        let long = "x".repeat(200);
        for (thread, want) in [
            (None, None),
            (Some("7"), None),
            (Some("-7"), None),
            (Some(" "), None),
            (Some(" Deploys "), Some("Deploys")),
            (Some(long.as_str()), Some(&long[..LONGEST_NAME])),
        ] {
            let platform = Platform::parse("telegram").expect("known");
            let to = Route { thread_id: thread.map(str::to_owned), ..Route::to_home(platform) };
            assert_eq!(name(&to).as_deref(), want, "{thread:?}");
        }
    }
}
