//! Running a gateway: start, drain, service, proof.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{chat_name, span};

#[derive(Debug, Subcommand)]
pub enum Gateway {
    /// Run the gateway in the foreground
    Run(Run),
}

#[derive(Debug, Clone, Copy, Args)]
pub struct Run {
    /// Stop a gateway that already runs on this home, and take its place
    #[arg(long)]
    pub replace: bool,
    /// Somebody starts the gateway again when it exits with 75
    #[arg(long)]
    pub external_supervisor: bool,
    /// Accepted for other gateways' sake; does nothing here
    #[arg(long, hide = true)]
    pub force: bool,
    /// Accepted for other gateways' sake; does nothing here
    #[arg(long, hide = true)]
    pub no_supervise: bool,
}

#[derive(Debug, Args)]
pub struct Prove {
    /// Chance begins here; the same number does the same again
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Go on with other seeds for so long
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub minutes: Option<u64>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Drain {
    #[command(subcommand)]
    pub action: Option<DrainAction>,
    #[command(flatten)]
    pub ask: DrainAsk,
}

#[derive(Debug, Args)]
pub struct DrainAsk {
    /// Wait until nobody is at work
    #[arg(long)]
    pub wait: bool,
    /// Wait no longer than this; the drain stays
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = span)]
    pub timeout: Option<Duration>,
    /// Why; shown to whoever asks for the state
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Do not tell home channels when the gateway stops
    #[arg(long)]
    pub suppress_notification: bool,
}

#[derive(Debug, Subcommand)]
pub enum DrainAction {
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
pub struct Service {
    #[command(subcommand)]
    pub action: ServiceAction,
    /// A service of the machine, not of this user
    #[arg(long, global = true)]
    pub system: bool,
    /// One of several services: petasos-NAME
    #[arg(long, global = true, value_name = "NAME", value_parser = chat_name)]
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ServiceAction {
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
pub struct ServiceInstall {
    /// Print the unit and do nothing
    #[arg(long)]
    pub print: bool,
    /// Start it at once (the default)
    #[arg(long, overrides_with = "no_start")]
    pub now: bool,
    /// Leave starting it to the next boot or login
    #[arg(long, overrides_with = "now")]
    pub no_start: bool,
    /// Replace a unit that petasos did not write
    #[arg(long)]
    pub force: bool,
}
