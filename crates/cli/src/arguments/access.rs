//! Arguments of `memory`, `pairing`, `approvals` and `config`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct MemoryArguments {
    #[command(subcommand)]
    pub action: Option<MemoryAction>,
    /// Person whose memory to use, such as telegram:7 [default: the owner]
    #[arg(long, global = true, value_name = "PERSON")]
    pub person: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum MemoryAction {
    /// Show the stored memory
    Show,
    /// Edit a memory file with your editor
    Edit {
        /// File to edit: memory or user
        file: Option<String>,
    },
    /// Delete all memory
    Clear,
}

#[derive(Debug, Args)]
pub struct PairingArguments {
    #[command(subcommand)]
    pub action: Option<PairingAction>,
}

#[derive(Debug, Subcommand)]
pub enum PairingAction {
    /// List paired users and pending requests
    List,
    /// Approve a pairing request by its code
    Approve {
        /// Platform on which the code was sent
        platform: String,
        /// Code that the person received
        code: String,
    },
    /// Revoke a user's access
    Revoke {
        /// Platform of the user
        platform: String,
        /// Id of the user, as listed
        user: String,
    },
    /// Unlock pairing after too many wrong codes
    Unlock {
        /// Platform whose pairing is locked
        platform: String,
    },
}

#[derive(Debug, Args)]
pub struct ApprovalsArguments {
    #[command(subcommand)]
    pub action: Option<ApprovalsAction>,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List lasting approvals
    List,
    /// Revoke a lasting approval, in every conversation
    Revoke {
        /// Kind of command, as listed
        #[arg(required_unless_present = "all")]
        kind: Option<String>,
        /// Revoke every lasting approval
        #[arg(long, conflicts_with = "kind")]
        all: bool,
    },
}

#[derive(Debug, Args)]
pub struct ConfigArguments {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Report every problem; exit code 78 if there is an error
    Check,
    /// Explain a key, a section or an environment variable: meaning, value and source
    Explain {
        /// Key, section or environment variable, such as agent.max_turns
        key: String,
    },
    /// Show all settings and where each is set
    Show {
        /// Include keys that are not set
        #[arg(long)]
        all: bool,
    },
    /// Print every key as a Markdown table
    Reference,
    /// Print the paths of the files
    Path,
}
