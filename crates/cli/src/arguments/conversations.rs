//! Arguments of `chat`, `send`, `sessions`, `links`, `outbox` and `cron`.

use clap::{Args, Subcommand, ValueEnum};

use super::{parse_name, parse_number};

#[derive(Debug, Args)]
pub struct SendArguments {
    /// Target: PLATFORM, PLATFORM:CHAT[:THREAD], PLATFORM:NAME, all or local; separate several with commas
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Text of the message; without it, or with -, read from standard input
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// Seconds to wait for delivery; a message that is still queued then gives exit code 75
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub wait: u64,
}

#[derive(Debug, Args)]
pub struct ChatArguments {
    /// Start a new session first
    #[arg(long)]
    pub new: bool,
    /// Conversation to use; each name is separate
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = parse_name)]
    pub session: String,
    /// Send this message and print only the answer
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SessionsArguments {
    #[command(subcommand)]
    pub action: Option<SessionsAction>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, global = true)]
    pub limit: usize,
}

#[derive(Debug, Subcommand)]
pub enum SessionsAction {
    /// List conversations, newest first
    List,
    /// Show the messages of a conversation
    Show {
        /// Id of the conversation; its beginning is enough
        id: String,
    },
    /// List archived conversations, most recently archived first
    Archive,
    /// Restore an archived conversation (stop the gateway first)
    Restore {
        /// Id of the conversation, or path of its file
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct LinksArguments {
    #[command(subcommand)]
    pub action: Option<LinksAction>,
}

#[derive(Debug, Subcommand)]
pub enum LinksAction {
    /// List platforms
    List,
    /// Retry a connection now
    Retry {
        /// Platform, as listed
        name: String,
    },
    /// Disconnect a platform until it is resumed
    Pause {
        /// Platform, as listed
        name: String,
    },
    /// Reconnect a paused platform
    Resume {
        /// Platform, as listed
        name: String,
    },
    /// List platform events that could not be parsed
    Unreadable {
        /// Print the raw text of one event
        #[arg(long, value_name = "ID", value_parser = parse_number)]
        raw: Option<i64>,
    },
}

#[derive(Debug, Args)]
pub struct OutboxArguments {
    #[command(subcommand)]
    pub action: Option<OutboxAction>,
    /// Only messages in this state [default: all that are not done]
    #[arg(long, global = true)]
    pub state: Option<OutboxStateFilter>,
    /// List every message, dead chat and rate limit
    #[arg(long, global = true)]
    pub all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutboxStateFilter {
    Streaming,
    Due,
    Sending,
    Done,
    Dead,
}

#[derive(Debug, Subcommand)]
pub enum OutboxAction {
    /// List messages
    List,
    /// Queue a dead-lettered message again
    Retry {
        /// Number of the message, as listed
        #[arg(value_parser = parse_number)]
        id: i64,
    },
    /// Delete a dead-lettered message
    Drop {
        /// Number of the message, as listed
        #[arg(value_parser = parse_number)]
        id: i64,
    },
}

#[derive(Debug, Args)]
pub struct CronArguments {
    #[command(subcommand)]
    pub action: Option<CronAction>,
}

#[derive(Debug, Subcommand)]
pub enum CronAction {
    /// List jobs
    List,
    /// Add a job
    Add(CronAddArguments),
    /// Pause a job
    Pause {
        /// Id of the job, as listed
        id: String,
    },
    /// Resume a paused job
    Resume {
        /// Id of the job, as listed
        id: String,
    },
    /// Remove a job
    #[command(alias = "delete")]
    Remove {
        /// Id of the job, as listed
        id: String,
    },
    /// Run a job now, regardless of its schedule
    Run {
        /// Id of the job, as listed
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct CronAddArguments {
    /// When to run: 30m (once), "every 2h", "0 9 * * 1-5", or 2027-02-03T14:00
    pub schedule: String,
    /// Prompt for the agent
    #[arg(required = true)]
    pub prompt: Vec<String>,
    /// Name of the job [default: the beginning of the prompt]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to deliver the answer: a platform, platform:chat[:thread], all, local [default: the first home
    /// channel]
    #[arg(long, value_name = "TARGETS")]
    pub deliver: Option<String>,
    /// Total number of runs
    #[arg(long, value_name = "TIMES")]
    pub repeat: Option<u32>,
    /// IANA name of the time zone [default: timezone in config.yaml]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
}
