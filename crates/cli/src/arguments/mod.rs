//! What can be typed after `petasos`: the commands; what each of them takes lies beside this.

mod connector;
mod keep;
mod life;
mod rules;
mod talk;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

pub use connector::{Connector, ConnectorAction, Enroll, GatewayAction, TenantAction};
pub use keep::{Backup, Doctor, Restore};
pub use life::{Drain, DrainAction, DrainAsk, Gateway, Prove, Run, Service, ServiceAction, ServiceInstall};
pub use rules::{
    Approvals, ApprovalsAction, Config, ConfigAction, MemoryAction, Pairing, PairingAction, Remembered,
};
pub use talk::{
    Chat, Cron, CronAction, Links, LinksAction, NewCron, Outbox, OutboxAction, OutboxState, Send, Sessions,
    SessionsAction,
};

/// One AI agent on every chat platform you use, and it keeps its promises there.
#[derive(Debug, Parser)]
#[command(name = "petasos", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Start with: petasos run\nThen, in another terminal: petasos chat")]
pub struct Arguments {
    /// Directory with configuration and database [default: $PETASOS_HOME, $HERMES_HOME, ~/.petasos]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Log errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway in the foreground
    Run(Run),
    /// The same, as other gateways call it
    #[command(hide = true, subcommand)]
    Gateway(Gateway),
    /// Talk to the agent in this terminal
    Chat(Chat),
    /// Show what the gateway is doing
    Status,
    /// List conversations, or show one
    Sessions(Sessions),
    /// Show how the platforms are connected; try, pause or resume one
    Links(Links),
    /// Say something in a chat, from this machine
    Send(Send),
    /// List the chats that can be written to by name
    Channels,
    /// List undelivered messages, send one again, or drop it
    Outbox(Outbox),
    /// List, set, pause or run scheduled work
    Cron(Cron),
    /// Show, edit or clear what the agent remembers
    Memory(Remembered),
    /// Let people in who asked for it, or out again
    Pairing(Pairing),
    /// List which kinds of commands run unasked, or have them asked about again
    Approvals(Approvals),
    /// Check and explain the configuration
    Config(Config),
    /// Look for what may be wrong
    Doctor(Doctor),
    /// Copy database, memories and configuration, checked; the gateway may run
    Backup(Backup),
    /// Put a backup in the place of a home's database and files
    Restore(Restore),
    /// Print a fresh link to the web page; it lets one browser in
    Open,
    /// Try the promises on this machine: kills, network cuts, a full disk; nothing of yours is touched
    Prove(Prove),
    /// Stop the running gateway and wait until it is gone
    Stop {
        /// Interrupt the turns that are running; the next start resumes them
        #[arg(long)]
        now: bool,
    },
    /// Start the gateway anew and wait until the new one is up
    Restart {
        /// Wait until the new one is up (the default)
        #[arg(long, overrides_with = "no_wait")]
        wait: bool,
        /// Ask for it and leave
        #[arg(long, overrides_with = "wait")]
        no_wait: bool,
    },
    /// Let no new turns start, while those that are running finish
    Drain(Drain),
    /// Let turns start again after a drain
    Resume,
    /// Get credentials for a relay's connector, once for a token
    Enroll(Enroll),
    /// Hold the platforms' credentials for gateways that come and go
    Connector(Connector),
    /// Let systemd keep the gateway running
    Service(Service),
    /// Print version and build
    Version,
    /// Print a completion script for a shell
    Completions { shell: Shell },
}

/// Seconds, with or without a fraction.
fn span(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.trim().parse().map_err(|_| "a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds from 0 on".to_owned())
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
