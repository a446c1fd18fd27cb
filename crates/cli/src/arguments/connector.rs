//! The other end of the relay, and a gateway's way to it.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Enroll {
    /// The enrollment token; default: GATEWAY_RELAY_ENROLL_TOKEN
    #[arg(long)]
    pub token: Option<String>,
    /// Address of the connector; default: GATEWAY_RELAY_URL
    #[arg(long)]
    pub connector_url: Option<String>,
    /// Name of this gateway there; default: after this machine
    #[arg(long)]
    pub gateway_id: Option<String>,
    /// Address that the connector calls when something waits for a gateway that sleeps
    #[arg(long)]
    pub wake_url: Option<String>,
}

#[derive(Debug, Args)]
pub struct Connector {
    #[command(subcommand)]
    pub action: ConnectorAction,
}

#[derive(Debug, Subcommand)]
pub enum ConnectorAction {
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
        #[arg(help = platform_help())]
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
    /// Take somebody's messages, or a whole scope, away from the agent that has them
    Unbind {
        #[arg(help = platform_help())]
        platform: String,
        /// The id of a person; with --scope, of a guild, a workspace or a group
        id: String,
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
pub enum TenantAction {
    /// Add one
    Add { id: String },
    /// List them
    List,
}

#[derive(Debug, Subcommand)]
pub enum GatewayAction {
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

fn platform_help() -> String {
    format!("The platform: {}", Vec::from_iter(petasos_platforms::AdapterKind::fronted()).join(", "))
}
