//! Command-line arguments. The top-level commands are here, their arguments in the modules below.

mod access;
mod connector;
mod conversations;
mod lifecycle;
mod maintenance;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

pub use access::{
    ApprovalsAction, ApprovalsArguments, ConfigAction, ConfigArguments, MemoryAction, MemoryArguments,
    PairingAction, PairingArguments,
};
pub use connector::{ConnectorAction, ConnectorArguments, EnrollArguments, GatewayAction, TenantAction};
pub use conversations::{
    ChatArguments, CronAction, CronAddArguments, CronArguments, LinksAction, LinksArguments, OutboxAction,
    OutboxArguments, OutboxStateFilter, SendArguments, SessionsAction, SessionsArguments,
};
pub use lifecycle::{
    DrainAction, DrainArguments, DrainRequestArguments, GatewayCommand, ProveArguments, RunArguments,
    ServiceAction, ServiceArguments, ServiceInstallArguments,
};
pub use maintenance::{BackupArguments, DoctorArguments, RestoreArguments};

/// One AI agent on every chat platform you use
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
    /// Log more; repeat for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Log errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the gateway in the foreground
    Run(RunArguments),
    /// The same as run, under the name that other gateways use
    #[command(hide = true, subcommand)]
    Gateway(GatewayCommand),
    /// Chat with the agent in this terminal
    Chat(ChatArguments),
    /// Show what the gateway is doing
    Status,
    /// List conversations, or show one
    Sessions(SessionsArguments),
    /// Show platform connections; retry, pause or resume one
    Links(LinksArguments),
    /// Send a message to a chat
    Send(SendArguments),
    /// List the chats that can be addressed by name
    Channels,
    /// List undelivered messages; retry or drop one
    Outbox(OutboxArguments),
    /// List, add, pause, run or remove scheduled jobs
    Cron(CronArguments),
    /// Show, edit or clear what the agent remembers
    Memory(MemoryArguments),
    /// List pairing requests; approve or revoke access
    Pairing(PairingArguments),
    /// List lasting approvals, or revoke them
    Approvals(ApprovalsArguments),
    /// Check and explain the configuration
    Config(ConfigArguments),
    /// Check the installation for problems
    Doctor(DoctorArguments),
    /// Back up database, memories and configuration; the gateway may keep running
    Backup(BackupArguments),
    /// Replace the database and files of a home with a backup
    Restore(RestoreArguments),
    /// Print a one-time sign-in link to the web page
    Open,
    /// Test the delivery guarantees on this machine with kills, network failures and a full disk, in a
    /// temporary home
    Prove(ProveArguments),
    /// Stop the running gateway and wait until it has exited
    Stop {
        /// Interrupt running turns instead of waiting; the next start resumes them
        #[arg(long)]
        now: bool,
    },
    /// Restart the gateway and wait until the new process is up
    Restart {
        /// Wait until the new process is up (the default)
        #[arg(long, overrides_with = "no_wait")]
        wait: bool,
        /// Request the restart and return at once
        #[arg(long, overrides_with = "wait")]
        no_wait: bool,
    },
    /// Stop new turns from starting and let running turns finish
    Drain(DrainArguments),
    /// End a drain: new turns start again
    Resume,
    /// Exchange an enrollment token for the credentials of a relay connector
    Enroll(EnrollArguments),
    /// Run and manage a connector, which holds platform credentials for other gateways
    Connector(ConnectorArguments),
    /// Install, remove or show the systemd service of the gateway
    Service(ServiceArguments),
    /// Print version and build
    Version,
    /// Print a completion script for a shell
    Completions {
        /// Shell of the script
        shell: Shell,
    },
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.trim().parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds of at least 0".to_owned())
}

fn parse_number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| "expected a number, as listed".to_owned())
}

/// The form that the API requires.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len());
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    (fits && plain)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected 1 to 64 characters of A-Z a-z 0-9 _ -".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_pass_clap_debug_assertions() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_option_and_command_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
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
