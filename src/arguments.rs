//! What can be typed after `petasos`.

use std::path::PathBuf;
use std::time::Duration;

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
    Doctor {
        /// Also ask the model's and the platforms' servers
        #[arg(long)]
        online: bool,
    },
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

#[derive(Debug, Args)]
pub(crate) struct Enroll {
    /// The enrollment token; default: GATEWAY_RELAY_ENROLL_TOKEN
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Address of the connector; default: GATEWAY_RELAY_URL
    #[arg(long)]
    pub(crate) connector_url: Option<String>,
    /// Name of this gateway there; default: after this machine
    #[arg(long)]
    pub(crate) gateway_id: Option<String>,
    /// Address that the connector calls when something waits for a gateway that sleeps
    #[arg(long)]
    pub(crate) wake_url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Run the gateway in the foreground
    Run(Run),
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Run {
    /// Stop a gateway that already runs on this home, and take its place
    #[arg(long)]
    pub(crate) replace: bool,
    /// Somebody starts the gateway again when it exits with 75
    #[arg(long)]
    pub(crate) external_supervisor: bool,
    /// Accepted for other gateways' sake; does nothing here
    #[arg(long, hide = true)]
    pub(crate) force: bool,
    /// Accepted for other gateways' sake; does nothing here
    #[arg(long, hide = true)]
    pub(crate) no_supervise: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Prove {
    /// Chance begins here; the same number does the same again
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Go on with other seeds for so long
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub(crate) minutes: Option<u64>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Drain {
    #[command(subcommand)]
    pub(crate) action: Option<DrainAction>,
    #[command(flatten)]
    pub(crate) ask: DrainAsk,
}

#[derive(Debug, Args)]
pub(crate) struct DrainAsk {
    /// Wait until nobody is at work
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this; the drain stays
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
    /// Why; shown to whoever asks for the state
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not tell home channels when the gateway stops
    #[arg(long)]
    pub(crate) suppress_notification: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DrainAction {
    /// Show who asked for a drain, and who is still at work
    Status,
    /// Do not wait for this session any more; a part of its name is enough
    Skip { session: String },
    /// Wait longer for this session when the gateway stops; a part of its name is enough
    Extend {
        session: String,
        /// How much longer, 1 to 900
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=900))]
        by: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Where: PLATFORM, PLATFORM:CHAT[:THREAD], PLATFORM:NAME, all or local; several with commas
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// What; without it, or with -, it is read from stdin
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Wait so long for the platforms; what is not delivered by then is still owed (exit code 75)
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) wait: u64,
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
pub(crate) struct Links {
    #[command(subcommand)]
    pub(crate) action: Option<LinksAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LinksAction {
    /// List platforms
    List,
    /// Try one now, whatever it waits for
    Retry { name: String },
    /// Disconnect one until it is wanted back
    Pause { name: String },
    /// Connect one again
    Resume { name: String },
    /// List what platforms told us and nobody could read
    Unreadable {
        /// Print the text of one, as it came
        #[arg(long, value_name = "ID")]
        raw: Option<i64>,
    },
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
pub(crate) struct Cron {
    #[command(subcommand)]
    pub(crate) action: Option<CronAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CronAction {
    /// List jobs
    List,
    /// Set a job
    Add(NewCron),
    /// Let a job rest
    Pause { id: String },
    /// Let it go on
    Resume { id: String },
    /// Forget a job
    #[command(alias = "delete")]
    Remove { id: String },
    /// Run a job now, whatever its schedule says
    Run { id: String },
}

#[derive(Debug, Args)]
pub(crate) struct NewCron {
    /// 30m (once), "every 2h", "0 9 * * 1-5", or 2027-02-03T14:00
    pub(crate) schedule: String,
    /// What the agent is asked then
    #[arg(required = true)]
    pub(crate) prompt: Vec<String>,
    /// What it is called [default: the beginning of the prompt]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Who hears the answer: a platform, platform:chat[:thread], all, local [default: the first home channel]
    #[arg(long, value_name = "TARGETS")]
    pub(crate) deliver: Option<String>,
    /// How often in all
    #[arg(long, value_name = "TIMES")]
    pub(crate) repeat: Option<u32>,
    /// IANA name of the time zone
    #[arg(long, value_name = "ZONE")]
    pub(crate) timezone: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Remembered {
    #[command(subcommand)]
    pub(crate) action: Option<MemoryAction>,
    /// Whose memory, as in telegram:7 [default: the owner's]
    #[arg(long, global = true, value_name = "PERSON")]
    pub(crate) person: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryAction {
    /// Show what is remembered
    Show,
    /// Change it with your editor
    Edit {
        /// memory or user
        file: Option<String>,
    },
    /// Forget everything
    Clear,
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
pub(crate) struct Approvals {
    #[command(subcommand)]
    pub(crate) action: Option<ApprovalsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsAction {
    /// List what was allowed for longer than once
    List,
    /// Ask about a kind of command again, in every conversation
    Revoke {
        /// As the list names it
        #[arg(required_unless_present = "all")]
        kind: Option<String>,
        /// Every kind
        #[arg(long, conflicts_with = "kind")]
        all: bool,
    },
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

#[derive(Debug, Args)]
pub(crate) struct Connector {
    #[command(subcommand)]
    pub(crate) action: ConnectorAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectorAction {
    /// Run the connector in the foreground
    Run {
        /// Address and port to listen on, instead of connector.listen
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
    },
    /// Who agents belong to
    #[command(subcommand)]
    Tenant(TenantAction),
    /// The gateways that may come in
    #[command(subcommand)]
    Gateway(GatewayAction),
    /// Print a token with which one gateway can enroll itself
    EnrollToken {
        /// Whose gateway it will be
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// How long it is good for
        #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
        within: u64,
    },
    /// Print a token with which a tenant's installer provisions gateways
    IdentityToken {
        /// Whose installer
        #[arg(long, value_name = "TENANT")]
        tenant: String,
    },
    /// Give somebody's messages, or a whole scope, to one agent
    Bind {
        /// The platform: telegram, discord, slack
        platform: String,
        /// The id of a person; with --scope, of a guild, a workspace or a group
        id: String,
        /// The agent
        #[arg(long, value_name = "INSTANCE")]
        instance: String,
        /// Everyone in that guild, workspace or group
        #[arg(long)]
        scope: bool,
    },
    /// Print a code; whoever sends the bot /link CODE speaks to that agent from then on
    Link {
        /// The agent
        #[arg(long, value_name = "INSTANCE")]
        instance: String,
    },
    /// Show instances, their queues, and what was put aside
    Status,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantAction {
    /// Add one
    Add { id: String },
    /// List them
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayAction {
    /// Add one, and print its secret
    Add {
        id: String,
        /// Whose it is
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// The agent it runs; made if there is none
        #[arg(long, value_name = "INSTANCE")]
        instance: String,
        /// The address that is called when something waits for it
        #[arg(long, value_name = "URL")]
        wake_url: Option<String>,
    },
    /// List them
    List,
    /// Give one a new secret, and print it; the old one is good for a day
    Rotate { id: String },
    /// Let one in no longer; it is put out at once
    Revoke { id: String },
}

#[derive(Debug, Args)]
pub(crate) struct Service {
    #[command(subcommand)]
    pub(crate) action: ServiceAction,
    /// A service of the machine, not of this user
    #[arg(long, global = true)]
    pub(crate) system: bool,
    /// One of several services: petasos-NAME
    #[arg(long, global = true, value_name = "NAME", value_parser = chat_name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceAction {
    /// Write the unit, enable it and start it
    Install(ServiceInstall),
    /// Stop the service and remove its unit
    Uninstall {
        /// Also a unit that petasos did not write, and also without systemd's help
        #[arg(long)]
        force: bool,
    },
    /// Show whether it is installed, enabled and active
    Status,
}

#[derive(Debug, Args)]
pub(crate) struct ServiceInstall {
    /// Print the unit and do nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Start it at once (the default)
    #[arg(long, overrides_with = "no_start")]
    pub(crate) now: bool,
    /// Leave starting it to the next boot or login
    #[arg(long, overrides_with = "now")]
    pub(crate) no_start: bool,
    /// Replace a unit that petasos did not write
    #[arg(long)]
    pub(crate) force: bool,
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
