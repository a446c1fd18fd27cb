//! Slash commands: the parser and the command table.
//!
//! A text is a command if it starts with a slash and its first word is not a path. An unknown command is rejected with a
//! suggestion and never forwarded to the agent.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::text::nearest;

/// A text in command form, known or unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand<'a> {
    /// Lower case, without slash and bot name. Empty for a lone slash.
    pub name: Cow<'a, str>,
    pub args: Cow<'a, str>,
}

impl<'a> SlashCommand<'a> {
    /// `None`: ordinary text or a path such as `/etc/passwd`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let body = text.strip_prefix('/')?;
        let (word, args) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        let name = word.split('@').next().unwrap_or_default();
        if name.contains('/') {
            return None;
        }
        Some(Self { name: lowercase(name), args: restore_dashes(args.trim()) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    pub name: Name,
    pub word: &'static str,
    pub aliases: &'static [&'static str],
    /// Argument syntax for the help text.
    pub args: &'static str,
    pub help: &'static str,
    /// Allowed while a turn runs; otherwise refused until it has ended.
    pub while_running: bool,
}

/// Generates the enum and the table from one list.
macro_rules! commands {
    ($($name:ident = $spec:expr,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Name {
            $($name,)*
        }

        /// In the order of the help text.
        pub const TABLE: &[Spec] = &[$(Spec { name: Name::$name, ..$spec }),*];
    };
}

commands! {
    Help = spec("help", "", "List the commands").also(&["commands"]),
    New = spec("new", "", "Start a new session").also(&["reset"]),
    Stop = spec("stop", "", "Stop the running turn and keep the session"),
    Status = spec("status", "", "Show what the gateway and this session are doing"),
    Sessions = spec("sessions", "", "List earlier sessions of this chat"),
    Resume = spec("resume", "[number, id or name]", "Go back to an earlier session").waiting(),
    Model = spec("model", "[name]", "Show or change the model of this session"),
    Queue = spec("queue", "<message>", "Run a message after the current turn").also(&["q"]),
    Retry = spec("retry", "[number [new text]]", "Answer the last message again, or one that was given up")
        .waiting(),
    Drop = spec("drop", "<number>", "Drop a message that was given up"),
    Undo = spec("undo", "[count]", "Drop the last exchanges from the session").waiting(),
    Compress = spec("compress", "[what to keep]", "Replace older messages by a summary")
        .also(&["compact"])
        .waiting(),
    Approve = spec("approve", "[all|id] [session|always]", "Approve a command that waits for approval"),
    Deny = spec("deny", "[all|id] [reason]", "Refuse a command that waits for approval"),
    Yolo = spec("yolo", "", "Switch command approvals off or on for this session"),
    Usage = spec("usage", "", "Show the tokens this session has used"),
    Where = spec("where", "", "Show the delivery status of your last message"),
    Platform = spec("platform", "[retry|pause name]", "Show the platforms, or pause or retry one")
        .also(&["platforms"]),
    Sethome = spec("sethome", "", "Send outage, restart and job notices to this chat")
        .also(&["set-home"]),
    Memory = spec("memory", "[clear]", "Show what I remember about you, or forget it"),
    Restart = spec("restart", "", "Restart the gateway when the running turns have ended"),
    Start = spec("start", "", "Say hello to the bot"),
    Whoami = spec("whoami", "", "Show who you are and what you may run"),
}

/// `commands!` fills the name in.
const fn spec(word: &'static str, args: &'static str, help: &'static str) -> Spec {
    Spec { name: Name::Help, word, aliases: &[], args, help, while_running: true }
}

impl Spec {
    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn waiting(self) -> Self {
        Self { while_running: false, ..self }
    }

    fn matches(&self, word: &str) -> bool {
        self.word == word || self.aliases.contains(&word)
    }
}

impl Name {
    pub fn find(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        TABLE.iter().find(|spec| spec.matches(&word)).map(|spec| spec.name)
    }

    pub fn spec(self) -> &'static Spec {
        // `commands!` lists both in one order.
        &TABLE[self as usize]
    }

    pub fn as_str(self) -> &'static str {
        self.spec().word
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    Text,
    Known(Name, String),
    /// Command form with an unknown name.
    Unknown(String),
}

/// A lone slash is text.
pub fn parse(text: &str) -> Parsed {
    let Some(command) = SlashCommand::parse(text).filter(|command| !command.name.is_empty()) else {
        return Parsed::Text;
    };
    match Name::find(&command.name) {
        Some(name) => Parsed::Known(name, command.args.into_owned()),
        None => Parsed::Unknown(command.name.into_owned()),
    }
}

/// The known command closest to an unknown name.
pub fn suggestion(unknown: &str) -> Option<&'static str> {
    let words = TABLE.iter().flat_map(|spec| core::iter::once(spec.word).chain(spec.aliases.iter().copied()));
    nearest(unknown, words)
}

fn lowercase(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_uppercase) { name.to_lowercase().into() } else { name.into() }
}

/// Phone keyboards replace `--` by a dash.
fn restore_dashes(args: &str) -> Cow<'_, str> {
    if !args.contains(['—', '–']) {
        return args.into();
    }
    args.replace('—', "--").replace('–', "-").into()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct CommandVectors {
        command_parse: Vec<CommandVector>,
    }

    #[derive(Deserialize)]
    struct CommandVector {
        text: String,
        cmd: Option<String>,
        args: String,
    }

    #[test]
    fn parses_the_recorded_commands() {
        let vectors: CommandVectors =
            serde_json::from_str(include_str!("../../../tests/vectors/platforms.json")).unwrap();
        for CommandVector { text, cmd, args } in vectors.command_parse {
            let command = SlashCommand::parse(&text);
            assert_eq!(command.as_ref().map(|it| it.name.as_ref()), cmd.as_deref(), "{text:?}");
            if let Some(command) = command {
                assert_eq!(command.args, args, "{text:?}");
            }
        }
    }

    #[track_caller]
    fn check(text: &str, want: Parsed) {
        assert_eq!(parse(text), want, "{text:?}");
    }

    #[test]
    fn passes_texts_paths_and_lone_slashes_to_the_agent() {
        for text in ["hello", "/etc/passwd", "/etc/passwd is odd", "/", "/ x", "see /help", "//x"] {
            check(text, Parsed::Text);
        }
    }

    #[test]
    fn finds_commands_by_alias_any_case_and_bot_name() {
        check("/Reset", Parsed::Known(Name::New, String::new()));
        check("/q@petasos_bot  later\nmore ", Parsed::Known(Name::Queue, "later\nmore".into()));
        check("/model gpt —global", Parsed::Known(Name::Model, "gpt --global".into()));
        check("/commands", Parsed::Known(Name::Help, String::new()));
    }

    #[test]
    fn suggests_the_nearest_command_for_an_unknown_name() {
        check("/stauts now", Parsed::Unknown("stauts".into()));
        assert_eq!(suggestion("stauts"), Some("status"));
        assert_eq!(suggestion("frobnicate"), None);
    }

    #[test]
    fn uses_no_word_twice() {
        let mut words = Vec::new();
        for spec in TABLE {
            assert_eq!(spec.name.spec(), spec);
            words.push(spec.word);
            words.extend(spec.aliases);
        }
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }

    #[test]
    fn refuses_session_rewrites_while_a_turn_runs() {
        let waiting: Vec<_> = TABLE.iter().filter(|spec| !spec.while_running).map(|spec| spec.word).collect();
        assert_eq!(waiting, ["resume", "retry", "undo", "compress"]);
    }
}
