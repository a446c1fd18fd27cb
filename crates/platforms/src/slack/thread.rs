//! What was said in a thread before we were called into it. Best effort, and never for long.

use std::time::Duration;

use futures_util::future::join_all;
use petasos_core::Inbound;
use petasos_core::text::Unit;
use tokio::time::timeout;

use super::wire::{Earlier, Replies};
use super::{Slack, text};

/// Slack waits for our acknowledgement meanwhile.
const PATIENCE: Duration = Duration::from_millis(800);
/// The first message of the thread and so many of the last are told, each cut to this length.
const LAST: usize = 20;
const LONGEST: usize = 500;

/// Whose words they are.
struct Voices<'a> {
    us: &'a str,
    /// The one who speaks now, and whom the gateway has yet to admit.
    speaker: &'a str,
}

impl Slack {
    /// For each event that brings us into a thread: what came before it.
    pub(super) async fn earlier(&self, events: &[Inbound]) -> Vec<Option<String>> {
        join_all(events.iter().map(|event| self.before(event))).await
    }

    async fn before(&self, event: &Inbound) -> Option<String> {
        let source = &event.source;
        let (channel, thread) = (source.chat_id.as_deref()?, source.thread_id.as_deref()?);
        let me = {
            let mut memory = self.memory();
            if !memory.enters(channel, thread) {
                return None;
            }
            memory.teams.get(source.scope_id.as_deref()?)?.clone()
        };
        let query = [("channel", channel), ("ts", thread), ("limit", "200")];
        let asked = self.api.get::<Replies>(&me.token, "conversations.replies", &query);
        let replies = timeout(PATIENCE, asked).await.ok()?.ok()?;
        let voices = Voices { us: &me.bot_user, speaker: source.user_id.as_deref().unwrap_or_default() };
        history(&replies.messages, source.message_id.as_deref()?, &voices)
    }
}

/// `None`: nothing was said before `ts`.
fn history(messages: &[Earlier], ts: &str, voices: &Voices<'_>) -> Option<String> {
    let said: Vec<&Earlier> = messages.iter().filter(|it| it.ts.as_str() < ts).collect();
    let (first, rest) = said.split_first()?;
    let skipped = rest.len().saturating_sub(LAST);
    let mut lines = vec![line(first, voices)];
    if skipped > 0 {
        lines.push(format!("[… {skipped} more]"));
    }
    lines.extend(rest[skipped..].iter().map(|message| line(message, voices)));
    Some(lines.join("\n"))
}

fn line(message: &Earlier, voices: &Voices<'_>) -> String {
    let user = message.user.as_deref().or(message.bot_id.as_deref()).unwrap_or("somebody");
    let who = if user == voices.us {
        "you".to_owned()
    } else if user == voices.speaker {
        format!("<@{user}>")
    } else {
        // Nobody has checked whether they may talk to us.
        format!("<@{user}> (unverified)")
    };
    let text = text::readable(&message.text);
    let shown = Unit::Chars.prefix(&text, LONGEST);
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{who}: {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(number: u32, user: &str, text: &str) -> Earlier {
        let ts = format!("1700000000.{number:06}");
        Earlier { ts, user: Some(user.into()), bot_id: None, text: text.into() }
    }

    fn told(messages: &[Earlier], before: u32) -> Option<String> {
        history(messages, &format!("1700000000.{before:06}"), &Voices { us: "U1", speaker: "U7" })
    }

    #[test]
    fn everybody_but_us_and_the_speaker_is_unverified() {
        let messages =
            [said(1, "U8", "a &amp; b"), said(2, "U7", "yes"), said(3, "U1", "no"), said(4, "U7", "now")];
        assert_eq!(told(&messages, 4).as_deref(), Some("<@U8> (unverified): a & b\n<@U7>: yes\nyou: no"));
        assert_eq!(told(&messages, 1), None);
    }

    #[test]
    fn a_long_thread_is_its_beginning_and_its_end() {
        let messages: Vec<Earlier> = (0..60).map(|n| said(n, "U7", &n.to_string().repeat(400))).collect();
        let told = told(&messages, 60).expect("something");
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines.len(), lines[1]), (LAST + 2, "[… 39 more]"));
        assert!(lines.iter().all(|line| line.chars().count() < LONGEST + 20), "{told}");
        assert!(lines[0].starts_with("<@U7>: 0") && lines[LAST + 1].starts_with("<@U7>: 59"));
    }
}
