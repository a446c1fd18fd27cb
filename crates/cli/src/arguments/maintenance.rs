//! Arguments of `doctor`, `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Also contact the model's and the platforms' servers
    #[arg(long)]
    pub online: bool,
    /// Check the whole database; move a damaged one aside and salvage its rows (stop the gateway first)
    #[arg(long, conflicts_with = "online")]
    pub repair: bool,
    /// Rewrite the database without its free space; needs disk space for a copy (stop the gateway first)
    #[arg(long, conflicts_with_all = ["online", "repair"])]
    pub compact: bool,
    /// Audit the configuration and the files of the home; fails if there is a serious weakness
    #[arg(long, conflicts_with_all = ["online", "repair", "compact"])]
    pub security: bool,
}

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Directory to create for this backup [default: a new one below backup.directory]
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Also copy .env, the API key, and the credentials in config.yaml
    #[arg(long)]
    pub include_secrets: bool,
    /// Backups to keep below backup.directory; older ones are removed [default: backup.keep]
    #[arg(long, value_name = "N", conflicts_with = "out", value_parser = parse_keep)]
    pub keep: Option<usize>,
}

fn parse_keep(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|keep| *keep >= 1).ok_or_else(|| "expected a number of at least 1".into())
}

#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Directory of the backup, created by petasos backup
    pub backup: PathBuf,
    /// Replace a home that is newer than the backup
    #[arg(long)]
    pub force: bool,
}
