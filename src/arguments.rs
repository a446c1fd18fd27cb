//! What can be typed after `petasos`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// One AI agent on every chat platform you use, and it keeps its promises there.
#[derive(Debug, Parser)]
#[command(name = "petasos", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Start with: petasos run\nThen, in another terminal: petasos chat")]
pub(crate) struct Arguments {
    /// Directory with configuration and database [default: $PETASOS_HOME, $HERMES_HOME, ~/.petasos]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Log errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway in the foreground
    Run,
    /// The same, as other gateways call it
    #[command(hide = true, subcommand)]
    Gateway(Gateway),
    /// Talk to the agent in this terminal
    Chat(Chat),
    /// Show what the gateway is doing
    Status,
    /// List conversations, or show one
    Sessions(Sessions),
    /// List undelivered messages, send one again, or drop it
    Outbox(Outbox),
    /// Let people in who asked for it, or out again
    Pairing(Pairing),
    /// Check and explain the configuration
    Config(Config),
    /// Look for what may be wrong
    Doctor {
        /// Also ask the model's and the platforms' servers
        #[arg(long)]
        online: bool,
    },
    /// Print a fresh link to the web page; it lets one browser in
    Open,
    /// Ask the running gateway to stop
    Stop,
    /// Print version and build
    Version,
    /// Print a completion script for a shell
    Completions { shell: Shell },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Run the gateway in the foreground
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Start a fresh session first
    #[arg(long)]
    pub(crate) new: bool,
    /// Which conversation; each name is one of its own
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = chat_name)]
    pub(crate) session: String,
    /// Ask this and print the answer only
    #[arg(value_name = "MESSAGE")]
    pub(crate) message: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    pub(crate) action: Option<SessionsAction>,
    /// How many at most
    #[arg(long, default_value_t = 50, global = true)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsAction {
    /// List conversations, newest first
    List,
    /// Show what was said in one; the beginning of its id is enough
    Show { id: String },
}

#[derive(Debug, Args)]
pub(crate) struct Outbox {
    #[command(subcommand)]
    pub(crate) action: Option<OutboxAction>,
    /// Only messages in this state [default: those that are not done]
    #[arg(long, global = true)]
    pub(crate) state: Option<OutboxState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutboxState {
    Streaming,
    Due,
    Sending,
    Done,
    Dead,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxAction {
    /// List messages
    List,
    /// Owe a given-up message again
    Retry { id: i64 },
    /// Forget a message that was given up
    Drop { id: i64 },
}

#[derive(Debug, Args)]
pub(crate) struct Pairing {
    #[command(subcommand)]
    pub(crate) action: Option<PairingAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PairingAction {
    /// List who is in and who asks
    List,
    /// Let somebody in by the code the bot gave them
    Approve { platform: String, code: String },
    /// Shut somebody out again
    Revoke { platform: String, user: String },
    /// Take codes again after too many wrong ones
    Unlock { platform: String },
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Say everything that is wrong; exit code 78 if anything is
    Check,
    /// Say what a key, a section or an environment variable means, what it is set to, and by whom
    Explain { key: String },
    /// Show what is set, and by whom
    Show {
        /// Also what is not set
        #[arg(long)]
        all: bool,
    },
    /// Print every key there is as a Markdown table
    Reference,
    /// Print where the files are
    Path,
}

/// As the API wants it.
fn chat_name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len());
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    (fits && plain).then(|| text.to_owned()).ok_or_else(|| "1 to 64 of A-Z a-z 0-9 _ -".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_has_a_help_text() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments().filter(|it| !it.is_positional()) {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            for below in command.get_subcommands() {
                assert!(below.get_about().is_some(), "{}", below.get_name());
                check(below);
            }
        }
        check(&Arguments::command());
    }
}
