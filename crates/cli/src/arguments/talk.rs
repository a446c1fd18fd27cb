//! What is said, to whom, and what became of it.

use clap::{Args, Subcommand, ValueEnum};

use super::chat_name;

#[derive(Debug, Args)]
pub struct Send {
    /// Where: PLATFORM, PLATFORM:CHAT[:THREAD], PLATFORM:NAME, all or local; several with commas
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// What; without it, or with -, it is read from stdin
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// Wait so long for the platforms; what is not delivered by then is still owed (exit code 75)
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub wait: u64,
}

#[derive(Debug, Args)]
pub struct Chat {
    /// Start a fresh session first
    #[arg(long)]
    pub new: bool,
    /// Which conversation; each name is one of its own
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = chat_name)]
    pub session: String,
    /// Ask this and print the answer only
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Sessions {
    #[command(subcommand)]
    pub action: Option<SessionsAction>,
    /// How many at most
    #[arg(long, default_value_t = 50, global = true)]
    pub limit: usize,
}

#[derive(Debug, Subcommand)]
pub enum SessionsAction {
    /// List conversations, newest first
    List,
    /// Show what was said in one; the beginning of its id is enough
    Show { id: String },
    /// List archived conversations, the latest archived first
    Archive,
    /// Bring an archived conversation back, by its id or by its file; the gateway must not be running
    Restore { id: String },
}

#[derive(Debug, Args)]
pub struct Links {
    #[command(subcommand)]
    pub action: Option<LinksAction>,
}

#[derive(Debug, Subcommand)]
pub enum LinksAction {
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
pub struct Outbox {
    #[command(subcommand)]
    pub action: Option<OutboxAction>,
    /// Only messages in this state [default: those that are not done]
    #[arg(long, global = true)]
    pub state: Option<OutboxState>,
    /// List every message, dead chat and rate limit
    #[arg(long, global = true)]
    pub all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutboxState {
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
    /// Owe a given-up message again
    Retry { id: i64 },
    /// Forget a message that was given up
    Drop { id: i64 },
}

#[derive(Debug, Args)]
pub struct Cron {
    #[command(subcommand)]
    pub action: Option<CronAction>,
}

#[derive(Debug, Subcommand)]
pub enum CronAction {
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
pub struct NewCron {
    /// 30m (once), "every 2h", "0 9 * * 1-5", or 2027-02-03T14:00
    pub schedule: String,
    /// What the agent is asked then
    #[arg(required = true)]
    pub prompt: Vec<String>,
    /// What it is called [default: the beginning of the prompt]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Who hears the answer: a platform, platform:chat[:thread], all, local [default: the first home channel]
    #[arg(long, value_name = "TARGETS")]
    pub deliver: Option<String>,
    /// How often in all
    #[arg(long, value_name = "TIMES")]
    pub repeat: Option<u32>,
    /// IANA name of the time zone
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
}
