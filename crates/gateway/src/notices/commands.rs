//! Answers to slash commands.

use std::fmt::Display;

use petasos_core::command;

use super::count;

pub(crate) const HELLO: &str =
    "👋 Hello, I am Petasos. Write to me as you would to a person. /help lists what else I can do.";
pub(crate) const EMPTY_SESSION: &str = "There is nothing in this session yet.";
pub(crate) const DENIED_BY_HOOK: &str = "🚫 This command is not allowed here.";

/// Key phrase: "Stopped".
pub(crate) const STOPPED: &str = "⏹ Stopped. You can continue in this session at any time.";
/// Key phrase: "No active task".
pub(crate) const NOTHING_TO_STOP: &str = "No active task to stop.";

pub(crate) const NEW_SESSION: &str = "✨ New session. The earlier one is saved: /sessions lists it.";
pub(crate) const NO_EARLIER_SESSION: &str = "There is no earlier session here to go back to.";
pub(crate) const UNKNOWN_SESSION: &str = "There is no such session here. Send /sessions to list them, then /resume with a number, an id or a name.";

pub(crate) const QUEUE_USAGE: &str = "Please add the message that I should queue: /queue <message>";
pub(crate) const QUEUE_MESSAGES_ONLY: &str = "Only messages can be queued, not commands.";
pub(crate) const UNDO_USAGE: &str = "Please send how many exchanges to drop, up to 100: /undo 2";

pub(crate) const NO_EARLIER_MESSAGE: &str = "There is no earlier message of yours here.";
pub(crate) const NOT_GIVEN_UP: &str = "No message with this number was given up here.";
pub(crate) const DROPPED: &str = "🗑 Dropped.";

pub(crate) const MEMORY_UNREADABLE: &str = "⚠️ I could not read what I remember. Please try again.";
pub(crate) const MEMORY_CLEARED: &str =
    "🧠 Forgotten. This conversation still contains it; /new starts one that does not.";
pub(crate) const MEMORY_EMPTY: &str = "🧠 I remember nothing yet.";
pub(crate) const MEMORY_ALREADY_EMPTY: &str = "🧠 There was nothing to forget.";
pub(crate) const MEMORY_USAGE: &str =
    "Send /memory to see what I remember, or /memory clear to make me forget it.";
pub(crate) const MEMORY_NOTES: &str = "What I noted";
pub(crate) const MEMORY_ABOUT_USER: &str = "What I know about you";

pub(crate) const HOME_NOT_POSSIBLE: &str = "This chat cannot be a home channel, because I cannot send messages to it by myself. Send /sethome in a chat on a platform.";
pub(crate) const HOME_NOT_SAVED: &str = "⚠️ I could not save the home channel, because the file .env in my home folder cannot be written. Please check its permissions.";

pub(crate) const NO_PLATFORMS: &str =
    "📡 No platform is configured. You can reach me on the web page and in the terminal.";
pub(crate) const PLATFORM_USAGE: &str =
    "Please name an action and a platform: /platform retry telegram or /platform pause telegram";

/// Key phrase: "Restarting gateway … within 60 seconds".
pub(crate) const RESTARTING: &str = "🔄 Restarting gateway. I should be back within 60 seconds.";
/// Key phrase: "restart is already in progress".
pub(crate) const ALREADY_RESTARTING: &str = "🔄 A restart is already in progress.";
pub(crate) const STAYING_DOWN: &str =
    "⏹ The gateway is shutting down and was asked to stay down, so it will not restart.";

pub(crate) fn help() -> String {
    let mut text = String::from("Write to me as you would to a person. Commands:\n");
    for spec in command::TABLE {
        let args = if spec.args.is_empty() { String::new() } else { format!(" {}", spec.args) };
        text.push_str(&format!("/{}{args}: {}\n", spec.word, spec.help));
    }
    text
}

/// Key phrase: "Unknown command".
pub(crate) fn unknown(name: &str, suggestion: Option<&str>) -> String {
    let hint = suggestion.map(|near| format!(" Did you mean /{near}?")).unwrap_or_default();
    format!("❓ Unknown command /{name}.{hint} Send /help for a list of commands.")
}

/// Key phrase: "Agent is running — `/x` can't run mid-turn".
pub(crate) fn not_while_running(name: &str) -> String {
    format!(
        "⏳ Agent is running — `/{name}` can't run mid-turn. Please wait until it has finished, or send /stop first."
    )
}

/// Key phrase: "Draining n active agent(s)".
pub(crate) fn restarting_after_drain(turns: usize) -> String {
    format!("🔄 Restarting gateway. Draining {turns} active agent(s) first.")
}

/// Key phrase: "Draining n active agent(s)".
pub(crate) fn already_restarting_after_drain(turns: usize) -> String {
    format!("🔄 A restart is already in progress. Draining {turns} active agent(s).")
}

/// Behind an acknowledgement of `/queue`. Key phrase: "(n queued)".
pub(crate) fn queued(acknowledgement: &str, waiting: usize) -> String {
    format!("{acknowledgement} ({waiting} queued)")
}

pub(crate) fn undone(exchanges: usize) -> String {
    match exchanges {
        1 => "↩️ Dropped the last exchange.".to_owned(),
        exchanges => format!("↩️ Dropped the last {exchanges} exchanges."),
    }
}

pub(crate) fn resumed(title: &str) -> String {
    format!("▶️ Back in “{title}”.")
}

pub(crate) fn untitled_session(id: impl Display) -> String {
    format!("new session {id}")
}

pub(crate) fn default_model(model: &str, provider: &str) -> String {
    format!("🧠 This session uses the default model {model} ({provider}). /model <name> changes it.")
}

pub(crate) fn chosen_model(model: &str, provider: &str) -> String {
    format!("🧠 This session uses {model} ({provider}). /model default goes back to the default.")
}

pub(crate) fn model_reset(model: &str) -> String {
    format!("🧠 This session now uses the default model {model}.")
}

pub(crate) fn model_changed(model: &str) -> String {
    format!("🧠 This session now uses {model}.")
}

/// One line of `/sessions`.
pub(crate) fn session_line(number: usize, title: &str, messages: u64, current: bool) -> String {
    let mark = if current { " ← now" } else { "" };
    format!(
        "{number}. {title} ({}){mark}\n",
        count(usize::try_from(messages).unwrap_or(usize::MAX), "message")
    )
}

pub(crate) fn sessions(lines: &str) -> String {
    let lines = if lines.is_empty() { "None yet.\n" } else { lines };
    format!("🗂 Sessions of this chat\n{lines}Send /resume <number> to go back to one.")
}

/// The activity in [`status`].
pub(crate) mod activity {
    pub(crate) const IDLE: &str = "idle";
    pub(crate) const HELD: &str = "interrupted by repeated restarts, continues by itself soon";
    pub(crate) const INTERRUPTED: &str = "interrupted, continues with your next message";

    pub(crate) fn working(seconds: u64, step: u32) -> String {
        format!("working for {seconds} s (step {step})")
    }
}

pub(crate) struct StatusFields<'a> {
    pub(crate) activity: &'a str,
    pub(crate) waiting: usize,
    pub(crate) model: &'a str,
    pub(crate) provider: &'a str,
    pub(crate) gateway: &'a str,
    pub(crate) active: usize,
    pub(crate) store_problem: Option<&'a str>,
}

pub(crate) fn status(fields: &StatusFields<'_>) -> String {
    let StatusFields { activity, waiting, model, provider, gateway, active, store_problem } = fields;
    let active = count(*active, "active turn");
    let waiting = count(*waiting, "message");
    let problem = store_problem.map(|problem| format!("\n⚠️ Database: {problem}")).unwrap_or_default();
    format!(
        "📊 Session: {activity}, {waiting} waiting\nModel: {model} ({provider})\nGateway: {gateway}, {active}{problem}"
    )
}

pub(crate) fn status_conversation(id: impl Display) -> String {
    format!("\nConversation: {id}")
}

pub(crate) struct UsageFields {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) total: u64,
    /// In US dollars; `None` without configured prices.
    pub(crate) cost: Option<f64>,
}

pub(crate) fn usage(fields: &UsageFields) -> String {
    let UsageFields { input, output, cache_read, cache_write, total, cost } = fields;
    let cost = cost.map(|cost| format!(" Estimated cost: ${cost:.4}.")).unwrap_or_default();
    format!(
        "🧮 This session: {input} tokens in, {output} out, {cache_read} read from the cache, {cache_write} written to it; {total} \
         in all.{cost}"
    )
}

/// The answer to `/where`; `state` is one of [`receipt_state`].
pub(crate) fn receipt(message: impl Display, state: &str) -> String {
    format!("📍 Message {message}: received and stored, {state}.")
}

pub(crate) mod receipt_state {
    pub(crate) fn waiting(position: impl std::fmt::Display) -> String {
        format!("number {position} in the queue")
    }

    pub(crate) fn running(seconds: u64) -> String {
        format!("in progress for {seconds} s")
    }

    pub(crate) fn delivered(state: &str) -> String {
        format!("{state}, delivered")
    }

    pub(crate) fn partly_delivered(state: &str, delivered: usize, all: usize) -> String {
        format!("{state}, {delivered} of {all} messages delivered")
    }
}

pub(crate) const EVERY_COMMAND: &str = "every command";

pub(crate) fn some_commands(names: &[&str]) -> String {
    format!("these commands: {}", names.join(", "))
}

pub(crate) struct WhoamiFields<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    pub(crate) platform: &'a str,
    pub(crate) chat_type: &'a str,
    pub(crate) chat_id: Option<&'a str>,
    pub(crate) commands: &'a str,
}

pub(crate) fn whoami(fields: &WhoamiFields<'_>) -> String {
    let WhoamiFields { name, id, platform, chat_type, chat_id, commands } = fields;
    let id = id.map(|id| format!(" [{id}]")).unwrap_or_default();
    format!(
        "🪪 You are {}{id} on {platform} ({chat_type} {}). You may talk to me and use {commands}.",
        name.unwrap_or("a user without a name"),
        chat_id.unwrap_or("-")
    )
}

pub(crate) fn memory_failed(error: impl Display) -> String {
    format!("⚠️ I cannot use what I remember: {error}")
}

/// `sections`: title and entries.
pub(crate) fn memory(sections: &[(&str, Vec<String>)]) -> String {
    let mut text = String::from("🧠");
    for (title, entries) in sections {
        let lines = entries.iter().map(|entry| format!("- {entry}")).collect::<Vec<_>>().join("\n");
        text.push_str(&format!("\n\n{title}:\n{lines}"));
    }
    text + "\n\n/memory clear makes me forget all of it."
}

pub(crate) fn home_set(platform: impl Display) -> String {
    format!(
        "🏠 This chat is now my home channel on {platform}: I send notifications here that do not answer a message."
    )
}

pub(crate) fn home_overridden(variable: &str) -> String {
    format!("\n⚠️ {variable} is also set in my environment and will take effect again after a restart.")
}

pub(crate) fn platforms(lines: &[String]) -> String {
    format!("📡 Platforms\n{}", lines.join("\n"))
}

pub(crate) fn unknown_platform(name: &str, list: &str) -> String {
    format!("There is no platform {name} here.\n{list}")
}

pub(crate) fn platform_retrying(name: &str) -> String {
    format!("📡 Connecting to {name} now.")
}

pub(crate) fn platform_paused(name: &str) -> String {
    format!("⏸ {name} is paused. Send /platform retry {name} to connect it again.")
}

pub(crate) fn platform_failed(error: impl Display) -> String {
    format!("⚠️ {error}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        let help = help();
        for spec in command::TABLE {
            assert!(help.contains(&format!("/{}", spec.word)), "{}", spec.word);
        }
    }
}
