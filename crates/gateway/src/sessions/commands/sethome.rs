//! `/sethome`: makes the chat the home channel of its platform.

use petasos_core::journal::MessageOutcome;
use petasos_core::message::Delivery;
use petasos_store::PendingMessage;

use crate::home::env;
use crate::lifecycle::lifetime::HomeChannel;
use crate::notices::commands as notices;
use crate::sessions::{SessionError, SessionTask};

const CHAT: &str = "HOME_CHANNEL";
const THREAD: &str = "HOME_CHANNEL_THREAD_ID";

impl SessionTask {
    /// Writes the setting before it takes effect. A crash in between, or before the reply, only repeats the command.
    pub(in crate::sessions) async fn sethome(
        &mut self,
        pending: &PendingMessage,
    ) -> Result<(), SessionError> {
        let source = &pending.inbound.source;
        let route = self.handles.channels.reply_route(&pending.inbound);
        if route.delivery == Delivery::Pull || route.chat_id.is_empty() {
            let text = notices::HOME_NOT_POSSIBLE.into();
            return self.reply(pending, text, MessageOutcome::Refused).await;
        }
        let name = source.chat_name.clone().unwrap_or_else(|| "Home".into());
        let platform = route.platform;
        let chat_id = route.chat_id;
        let thread_id = route.thread_id;
        let home = HomeChannel { platform, chat_id, thread_id, name };
        let handles = self.handles.clone();
        let written = petasos_runtime::blocking(move || {
            handles.notifications.homes.save(home, |home| write(&handles.home, home))
        });
        let written = written.await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!(?written, "cannot write the home channel");
            let text = notices::HOME_NOT_SAVED.into();
            return self.reply(pending, text, MessageOutcome::Refused).await;
        }
        let mut text = notices::home_set(platform);
        let variables = [CHAT, THREAD].map(|name| variable(platform.as_str(), name));
        if let Some(name) =
            variables.iter().find(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()))
        {
            text.push_str(&notices::home_overridden(name));
        }
        self.reply(pending, text, MessageOutcome::Answered).await
    }
}

fn variable(platform: &str, name: &str) -> String {
    format!("{}_{name}", platform.to_ascii_uppercase())
}

fn write(folder: &std::path::Path, home: &HomeChannel) -> std::io::Result<()> {
    let [chat, thread] = [CHAT, THREAD].map(|name| variable(home.platform.as_str(), name));
    env::set(folder, &[(&chat, Some(&home.chat_id)), (&thread, home.thread_id.as_deref())])
}
