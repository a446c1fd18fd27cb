//! Earlier messages of a thread that the bot joins. Best effort within a short timeout.

use futures_util::future::join_all;
use petasos_core::Inbound;
use petasos_core::text::Unit;
use tokio::time::timeout;

use super::mrkdwn;
use super::user_names::REQUEST_TIMEOUT;
use crate::slack::Slack;
use crate::slack::wire::{RepliesResponse, ThreadMessage};

/// Included besides the first message.
const MAX_RECENT: usize = 20;
/// Characters of each message.
const MAX_TEXT: usize = 500;

struct Participants<'a> {
    bot: &'a str,
    /// The author of the new message. The gateway has not authorised them yet.
    author: &'a str,
}

impl Slack {
    /// One entry per event: the messages before it, if it brings the bot into an existing thread.
    pub(super) async fn fetch_thread_contexts(&self, events: &[Inbound]) -> Vec<Option<String>> {
        join_all(events.iter().map(|event| self.fetch_thread_context(event))).await
    }

    async fn fetch_thread_context(&self, event: &Inbound) -> Option<String> {
        let source = &event.source;
        let channel = source.chat_id.as_deref()?;
        let thread = source.thread_id.as_deref()?;
        let bot = {
            let mut state = self.state();
            if !state.take_unread_thread(channel, thread) {
                return None;
            }
            state.workspaces.get(source.scope_id.as_deref()?)?.clone()
        };
        let query = [("channel", channel), ("ts", thread), ("limit", "200")];
        let request = self.api.get::<RepliesResponse>(&bot.token, "conversations.replies", &query);
        let replies = timeout(REQUEST_TIMEOUT, request).await.ok()?.ok()?;
        let author = source.user_id.as_deref().unwrap_or_default();
        let participants = Participants { bot: &bot.bot_user, author };
        summarize(&replies.messages, source.message_id.as_deref()?, &participants)
    }
}

/// `None`: there are no messages before `ts`.
fn summarize(messages: &[ThreadMessage], ts: &str, participants: &Participants<'_>) -> Option<String> {
    let earlier: Vec<&ThreadMessage> = messages.iter().filter(|it| it.ts.as_str() < ts).collect();
    let (first, rest) = earlier.split_first()?;
    let skipped = rest.len().saturating_sub(MAX_RECENT);
    let mut lines = vec![format_message(first, participants)];
    if skipped > 0 {
        lines.push(format!("[… {skipped} more]"));
    }
    lines.extend(rest[skipped..].iter().map(|message| format_message(message, participants)));
    Some(lines.join("\n"))
}

fn format_message(message: &ThreadMessage, participants: &Participants<'_>) -> String {
    let user = message.user.as_deref().or(message.bot_id.as_deref()).unwrap_or("unknown");
    let author = if user == participants.bot {
        "you".to_owned()
    } else if user == participants.author {
        format!("<@{user}>")
    } else {
        // Nothing was checked about this user's permissions.
        format!("<@{user}> (unverified)")
    };
    let text = mrkdwn::to_plain_text(&message.text);
    let shown = Unit::Chars.prefix(&text, MAX_TEXT);
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{author}: {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u32, user: &str, text: &str) -> ThreadMessage {
        let ts = format!("1700000000.{number:06}");
        ThreadMessage { ts, user: Some(user.into()), bot_id: None, text: text.into() }
    }

    fn context(messages: &[ThreadMessage], before: u32) -> Option<String> {
        let participants = Participants { bot: "U1", author: "U7" };
        summarize(messages, &format!("1700000000.{before:06}"), &participants)
    }

    #[test]
    fn marks_other_users_as_unverified() {
        let messages = [
            message(1, "U8", "a &amp; b"),
            message(2, "U7", "yes"),
            message(3, "U1", "no"),
            message(4, "U7", "now"),
        ];
        assert_eq!(context(&messages, 4).as_deref(), Some("<@U8> (unverified): a & b\n<@U7>: yes\nyou: no"));
        assert_eq!(context(&messages, 1), None);
    }

    #[test]
    fn keeps_the_first_and_last_messages_of_a_long_thread() {
        let messages: Vec<ThreadMessage> =
            (0..60).map(|n| message(n, "U7", &n.to_string().repeat(400))).collect();
        let context = context(&messages, 60).expect("a context");
        let lines: Vec<&str> = context.lines().collect();
        assert_eq!((lines.len(), lines[1]), (MAX_RECENT + 2, "[… 39 more]"));
        assert!(lines.iter().all(|line| line.chars().count() < MAX_TEXT + 20), "{context}");
        assert!(lines[0].starts_with("<@U7>: 0") && lines[MAX_RECENT + 1].starts_with("<@U7>: 59"));
    }
}
