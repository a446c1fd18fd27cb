//! Arguments of `run`, `drain`, `service` and `prove`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{parse_name, parse_seconds};

#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Run the gateway in the foreground
    Run(RunArguments),
}

#[derive(Debug, Clone, Copy, Args)]
pub struct RunArguments {
    /// Stop a gateway that already runs on this home and take over from it
    #[arg(long)]
    pub replace: bool,
    /// Rely on a supervisor to start the gateway again when it exits with code 75
    #[arg(long)]
    pub external_supervisor: bool,
    /// Accepted for compatibility with other gateways; has no effect
    #[arg(long, hide = true)]
    pub force: bool,
    /// Accepted for compatibility with other gateways; has no effect
    #[arg(long, hide = true)]
    pub no_supervise: bool,
}

#[derive(Debug, Args)]
pub struct ProveArguments {
    /// Seed of the random choices; the same seed repeats the same run
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Repeat with other seeds for this many minutes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub minutes: Option<u64>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DrainArguments {
    #[command(subcommand)]
    pub action: Option<DrainAction>,
    #[command(flatten)]
    pub request: DrainRequestArguments,
}

#[derive(Debug, Args)]
pub struct DrainRequestArguments {
    /// Wait until no turn is running
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time; the drain stays in effect
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Reason of the drain, shown by petasos status
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Do not notify home channels when the gateway stops
    #[arg(long)]
    pub suppress_notification: bool,
}

#[derive(Debug, Subcommand)]
pub enum DrainAction {
    /// Show who requested the drain and which turns are running
    Status,
    /// Stop waiting for a session
    Skip {
        /// Name of the session; a part of it is enough
        session: String,
    },
    /// Wait longer for a session when the gateway stops
    Extend {
        /// Name of the session; a part of it is enough
        session: String,
        /// Additional seconds, 1 to 900
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=900))]
        by: u64,
    },
}

#[derive(Debug, Args)]
pub struct ServiceArguments {
    #[command(subcommand)]
    pub action: ServiceAction,
    /// Use a system service instead of a service of this user
    #[arg(long, global = true)]
    pub system: bool,
    /// Name of the service, when there are several: petasos-NAME
    #[arg(long, global = true, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// Write the unit, enable it and start it
    Install(ServiceInstallArguments),
    /// Stop the service and remove its unit
    Uninstall {
        /// Also remove a unit that petasos did not write, and continue without systemd
        #[arg(long)]
        force: bool,
    },
    /// Show whether the service is installed, enabled and active
    Status,
}

#[derive(Debug, Args)]
pub struct ServiceInstallArguments {
    /// Print the unit and change nothing
    #[arg(long)]
    pub print: bool,
    /// Start it at once (the default)
    #[arg(long, overrides_with = "no_start")]
    pub now: bool,
    /// Start it only at the next boot or login
    #[arg(long, overrides_with = "now")]
    pub no_start: bool,
    /// Replace a unit that petasos did not write
    #[arg(long)]
    pub force: bool,
}
