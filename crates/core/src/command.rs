//! Slash commands: reading them, and the table of those we know.
//!
//! A text is a command if it starts with a slash and its first word is not a path. Reading never fails:
//! what is no command is text for the agent, and a name nobody knows is `Unknown`, never forwarded.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::text::nearest;

/// A text in command form, known or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command<'a> {
    /// Lower case, without slash and bot name. Empty for a lone slash.
    pub name: Cow<'a, str>,
    pub args: Cow<'a, str>,
}

impl<'a> Command<'a> {
    /// `None`: ordinary text, or a path such as `/etc/passwd`.
    pub fn read(text: &'a str) -> Option<Self> {
        let body = text.strip_prefix('/')?;
        let (word, args) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        let name = word.split('@').next().unwrap_or_default();
        if name.contains('/') {
            return None;
        }
        Some(Self { name: lowered(name), args: undashed(args.trim()) })
    }
}

/// One line of the command table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    pub name: Name,
    /// As it is typed, without the slash.
    pub word: &'static str,
    pub aliases: &'static [&'static str],
    /// What may follow, for help texts; empty if nothing.
    pub args: &'static str,
    pub help: &'static str,
    /// Runs at once even if a turn is running; the others are refused until it has ended.
    pub while_running: bool,
}

/// One list for the names and the table: neither can lack a command that the other has.
macro_rules! commands {
    ($($name:ident = $spec:expr,)*) => {
        /// Our commands.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Name {
            $($name,)*
        }

        /// In the order in which help lists them.
        pub const TABLE: &[Spec] = &[$(Spec { name: Name::$name, ..$spec }),*];
    };
}

commands! {
    Help = spec("help", "", "List the commands").also(&["commands"]),
    New = spec("new", "", "Start a fresh session").also(&["reset"]),
    Stop = spec("stop", "", "Stop the running turn and keep the session"),
    Status = spec("status", "", "Show what the gateway and this session are doing"),
    Sessions = spec("sessions", "", "List earlier sessions of this chat"),
    Resume = spec("resume", "[number, id or name]", "Go back to an earlier session").waiting(),
    Model = spec("model", "[name]", "Show or change the model of this session"),
    Queue = spec("queue", "<message>", "Run a message after the current turn").also(&["q"]),
    Retry = spec("retry", "[number [new text]]", "Answer the last message again, or one I gave up")
        .waiting(),
    Drop = spec("drop", "<number>", "Drop a message that I gave up"),
    Undo = spec("undo", "[count]", "Drop the last exchanges from the session").waiting(),
    Compress = spec("compress", "[what to keep]", "Sum the conversation up to save room")
        .also(&["compact"])
        .waiting(),
    Approve = spec("approve", "[all|id] [session|always]", "Let a command run that I asked about"),
    Deny = spec("deny", "[all|id] [reason]", "Do not let it run"),
    Yolo = spec("yolo", "", "Switch questions about commands off, or on again, for this session"),
    Usage = spec("usage", "", "Show the tokens this session has used"),
    Where = spec("where", "", "Show what became of your last message"),
    Platform = spec("platform", "[retry|pause name]", "Show how the platforms are, or change that")
        .also(&["platforms"]),
    Sethome = spec("sethome", "", "Say here what nobody asked for: outages, restarts, scheduled work")
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

    fn answers_to(&self, word: &str) -> bool {
        self.word == word || self.aliases.contains(&word)
    }
}

impl Name {
    /// By its word or an alias of it.
    pub fn find(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        TABLE.iter().find(|spec| spec.answers_to(&word)).map(|spec| spec.name)
    }

    pub fn spec(self) -> &'static Spec {
        // `commands!` lists both in one order.
        &TABLE[self as usize]
    }

    pub fn as_str(self) -> &'static str {
        self.spec().word
    }
}

/// What an inbound text asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// For the agent.
    Text,
    /// One of ours, with its arguments.
    Known(Name, String),
    /// Command form, but nobody knows the name: answered with a hint, not forwarded.
    Unknown(String),
}

/// Reads an inbound text. A lone slash is text.
pub fn parse(text: &str) -> Parsed {
    let Some(command) = Command::read(text).filter(|command| !command.name.is_empty()) else {
        return Parsed::Text;
    };
    match Name::find(&command.name) {
        Some(name) => Parsed::Known(name, command.args.into_owned()),
        None => Parsed::Unknown(command.name.into_owned()),
    }
}

/// The command an unknown name most likely meant.
pub fn suggestion(unknown: &str) -> Option<&'static str> {
    let words = TABLE.iter().flat_map(|spec| core::iter::once(spec.word).chain(spec.aliases.iter().copied()));
    nearest(unknown, words)
}

fn lowered(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_uppercase) { name.to_lowercase().into() } else { name.into() }
}

/// Phone keyboards turn `--flag` into a dash.
fn undashed(args: &str) -> Cow<'_, str> {
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
    struct Vectors {
        command_parse: Vec<Vector>,
    }

    #[derive(Deserialize)]
    struct Vector {
        text: String,
        cmd: Option<String>,
        args: String,
    }

    #[test]
    fn reads_commands_as_recorded() {
        let vectors: Vectors =
            serde_json::from_str(include_str!("../../../tests/vectors/platforms.json")).unwrap();
        for Vector { text, cmd, args } in vectors.command_parse {
            let command = Command::read(&text);
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
    fn texts_paths_and_lone_slashes_go_to_the_agent() {
        for text in ["hello", "/etc/passwd", "/etc/passwd is odd", "/", "/ x", "see /help", "//x"] {
            check(text, Parsed::Text);
        }
    }

    #[test]
    fn aliases_case_and_bot_names_find_the_command() {
        check("/Reset", Parsed::Known(Name::New, String::new()));
        check("/q@petasos_bot  later\nmore ", Parsed::Known(Name::Queue, "later\nmore".into()));
        check("/model gpt —global", Parsed::Known(Name::Model, "gpt --global".into()));
        check("/commands", Parsed::Known(Name::Help, String::new()));
    }

    #[test]
    fn an_unknown_name_is_kept_and_answered_with_the_nearest_one() {
        check("/stauts now", Parsed::Unknown("stauts".into()));
        assert_eq!(suggestion("stauts"), Some("status"));
        assert_eq!(suggestion("frobnicate"), None);
    }

    #[test]
    fn no_word_is_used_twice() {
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
    fn what_rewrites_the_session_waits_for_the_turn() {
        let waiting: Vec<_> = TABLE.iter().filter(|spec| !spec.while_running).map(|spec| spec.word).collect();
        assert_eq!(waiting, ["resume", "retry", "undo", "compress"]);
    }
}
