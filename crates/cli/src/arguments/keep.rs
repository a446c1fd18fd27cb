//! What commands that look after a home take.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct Doctor {
    /// Also ask the model's and the platforms' servers
    #[arg(long)]
    pub online: bool,
    /// Check the whole database; move a damaged one aside and salvage its rows (the gateway must be stopped)
    #[arg(long, conflicts_with = "online")]
    pub repair: bool,
    /// Rewrite the database without free space; needs room for a copy (the gateway must be stopped)
    #[arg(long, conflicts_with_all = ["online", "repair"])]
    pub compact: bool,
}

#[derive(Debug, Args)]
pub struct Backup {
    /// Directory to create for this backup [default: a new one below backup.directory]
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Also copy .env, the API key, and the credentials in config.yaml
    #[arg(long)]
    pub include_secrets: bool,
    /// Backups to keep below backup.directory; older ones are removed [default: backup.keep]
    #[arg(long, value_name = "N", conflicts_with = "out", value_parser = keep)]
    pub keep: Option<usize>,
}

fn keep(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|keep| *keep >= 1).ok_or_else(|| "a number from 1 on".into())
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The directory that petasos backup made
    pub backup: PathBuf,
    /// Replace a home that is newer than the backup
    #[arg(long)]
    pub force: bool,
}
