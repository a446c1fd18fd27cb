//! What the agent remembers, who may speak to it, what it may do, and how it is set up.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Remembered {
    #[command(subcommand)]
    pub action: Option<MemoryAction>,
    /// Whose memory, as in telegram:7 [default: the owner's]
    #[arg(long, global = true, value_name = "PERSON")]
    pub person: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum MemoryAction {
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
pub struct Pairing {
    #[command(subcommand)]
    pub action: Option<PairingAction>,
}

#[derive(Debug, Subcommand)]
pub enum PairingAction {
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
pub struct Approvals {
    #[command(subcommand)]
    pub action: Option<ApprovalsAction>,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
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
pub struct Config {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
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
