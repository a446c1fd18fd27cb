//! Arguments of `enroll` and `connector`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use petasos_core::{GatewayId, InstanceId, TenantId};

#[derive(Debug, Args)]
pub struct EnrollArguments {
    /// Enrollment token, or - to read it from stdin; other users of the machine can see an argument [default:
    /// $GATEWAY_RELAY_ENROLL_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// File with the enrollment token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Address of the connector [default: $GATEWAY_RELAY_URL]
    #[arg(long, value_name = "URL")]
    pub connector_url: Option<String>,
    /// Name of this gateway at the connector [default: derived from the host name]
    #[arg(long, value_name = "NAME")]
    pub gateway_id: Option<GatewayId>,
    /// URL that the connector calls to wake a sleeping gateway
    #[arg(long, value_name = "URL")]
    pub wake_url: Option<String>,
}

#[derive(Debug, Args)]
pub struct ConnectorArguments {
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
    /// Manage tenants, the owners of gateways
    #[command(subcommand)]
    Tenant(TenantAction),
    /// Manage the gateways that may connect
    #[command(subcommand)]
    Gateway(GatewayAction),
    /// Print a token with which one gateway can enroll
    EnrollToken {
        /// Tenant of the gateway
        #[arg(long, value_name = "TENANT")]
        tenant: TenantId,
        /// Lifetime of the token
        #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
        within: u64,
    },
    /// Print a token with which a tenant's installer provisions gateways
    IdentityToken {
        /// Tenant of the installer
        #[arg(long, value_name = "TENANT")]
        tenant: TenantId,
    },
    /// Route the messages of a person, or of a whole scope, to one agent
    Bind {
        #[arg(help = platform_help())]
        platform: String,
        /// Id of a person; with --scope, of a guild, a workspace or a group
        id: String,
        /// Instance of the agent
        #[arg(long, value_name = "INSTANCE")]
        instance: InstanceId,
        /// Apply to everyone in that guild, workspace or group
        #[arg(long)]
        scope: bool,
    },
    /// Stop routing the messages of a person, or of a whole scope, to an agent
    Unbind {
        #[arg(help = platform_help())]
        platform: String,
        /// Id of a person; with --scope, of a guild, a workspace or a group
        id: String,
        /// Apply to everyone in that guild, workspace or group
        #[arg(long)]
        scope: bool,
    },
    /// Print a code with which a person connects to this agent: they send /link CODE to the bot
    Link {
        /// Instance of the agent
        #[arg(long, value_name = "INSTANCE")]
        instance: InstanceId,
    },
    /// Show instances, their queues and dead letters
    Status,
    /// Write a checked copy of the connector's database; the connector may run
    Backup {
        /// File to create; it contains the secrets of all gateways
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Check the connector's database; move a damaged one aside and salvage its rows (stop the connector first)
    Repair {
        /// Admit people without a rule again after a salvage that lost rules which deny people
        #[arg(long)]
        accept_lost_denials: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum TenantAction {
    /// Add a tenant
    Add {
        /// Name of the new tenant
        id: TenantId,
    },
    /// List tenants
    List,
    /// Return an agent to its tenant after a salvage that lost it; its gateways then connect again
    Assign {
        /// Tenant of the agent
        tenant: TenantId,
        /// Instance of the agent
        instance: InstanceId,
    },
}

#[derive(Debug, Subcommand)]
pub enum GatewayAction {
    /// Add a gateway and print its secret
    Add {
        /// Name of the new gateway
        id: GatewayId,
        /// Tenant of the gateway
        #[arg(long, value_name = "TENANT")]
        tenant: TenantId,
        /// Instance of the agent
        #[arg(long, value_name = "INSTANCE")]
        instance: InstanceId,
        /// URL that the connector calls to wake the gateway
        #[arg(long, value_name = "URL")]
        wake_url: Option<String>,
    },
    /// List gateways
    List,
    /// Create a new secret for a gateway and print it; the old one stays valid for a day
    Rotate {
        /// Name of the gateway
        id: GatewayId,
    },
    /// Revoke a gateway and disconnect it at once
    Revoke {
        /// Name of the gateway
        id: GatewayId,
    },
}

fn platform_help() -> String {
    format!("Platform: {}", Vec::from_iter(petasos_platforms::AdapterKind::fronted()).join(", "))
}
