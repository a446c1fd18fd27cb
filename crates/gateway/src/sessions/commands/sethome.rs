//! `/sethome`: this chat is where its platform's owner hears what nobody asked for.

use petasos_core::journal::Outcome;
use petasos_core::message::Delivery;
use petasos_store::Pending;

use crate::home::env;
use crate::lifecycle::lifetime::HomeChannel;
use crate::sessions::{Ended, Session};

const CHAT: &str = "HOME_CHANNEL";
const THREAD: &str = "HOME_CHANNEL_THREAD_ID";

impl Session {
    /// On disk first, then in force. A crash between the two, or before the answer, only makes it happen again.
    pub(in crate::sessions) async fn sethome(&mut self, pending: &Pending) -> Result<(), Ended> {
        let source = &pending.inbound.source;
        let route = self.handles.channels.way_back(&pending.inbound);
        if route.delivery == Delivery::Pull || route.chat_id.is_empty() {
            let text = "Only a chat on a platform can be a home: nothing can be sent to this one.".into();
            return self.answer(pending, text, Outcome::Refused).await;
        }
        let name = source.chat_name.clone().unwrap_or_else(|| "Home".into());
        let (platform, chat_id, thread_id) = (route.platform, route.chat_id, route.thread_id);
        let home = HomeChannel { platform, chat_id, thread_id, name };
        let handles = self.handles.clone();
        let kept = petasos_runtime::blocking(move || {
            handles.notifications.homes.keep(home, |home| write(&handles.home, home))
        });
        let kept = kept.await;
        if !matches!(kept, Ok(Ok(()))) {
            tracing::warn!(?kept, "the home channel could not be written");
            let text = "⚠️ The home could not be kept: .env in my home folder cannot be written.".into();
            return self.answer(pending, text, Outcome::Refused).await;
        }
        let mut text = format!("🏠 This is now my home on {platform}: what nobody asked for is said here.");
        let outranked = [CHAT, THREAD].map(|name| variable(platform.as_str(), name));
        if let Some(name) =
            outranked.iter().find(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()))
        {
            text.push_str(&format!(
                "\n⚠️ {name} is also set in my environment and counts again after a restart."
            ));
        }
        self.answer(pending, text, Outcome::Answered).await
    }
}

fn variable(platform: &str, name: &str) -> String {
    format!("{}_{name}", platform.to_ascii_uppercase())
}

fn write(folder: &std::path::Path, home: &HomeChannel) -> std::io::Result<()> {
    let [chat, thread] = [CHAT, THREAD].map(|name| variable(home.platform.as_str(), name));
    env::set(folder, &[(&chat, Some(&home.chat_id)), (&thread, home.thread_id.as_deref())])
}
