//! Keys of a connector (`petasos connector run`).

use std::time::Duration;

use serde_json::Value;

use crate::key::{count, flag, keys, list, seconds, table, text, text_or};

keys! {
    LISTEN: String = text_or(
        "connector.listen",
        "127.0.0.1:8655",
        "address and port to listen on for gateways (port 0 = any free port)",
    );
    PUBLIC_URL: Option<String> =
        text("connector.public_url", "URL under which gateways reach the connector, if different from listen");
    SINGLE_INSTANCE: Option<String> =
        text("connector.single_instance", "name of the only agent, which gets the messages of all allowed users");
    PLATFORMS: Option<Value> =
        table("connector.platforms", "platforms of the connector, in the format of platforms");
    ALLOW_ALL_USERS: bool =
        flag("connector.allow_all_users", false, "let every user talk to the agent of single_instance");
    ALLOWED_USERS: Vec<String> =
        list("connector.allowed_users", "user ids that may talk to the agent, on every platform of the connector");
    WAKE_HOSTS: Vec<String> = list(
        "connector.wake_hosts",
        "hosts (host or host:port) whose wake URLs may be local addresses or plain HTTP",
    );
    DURABLE_LIVE: bool = flag(
        "connector.durable_live",
        true,
        "store every event until the gateway acknowledges it, even while it is connected",
    );
    WAKE_COOLDOWN: Duration =
        seconds("connector.wake_cooldown", 60.0, "minimum seconds between two calls of one wake URL");
    WINDOW: usize =
        count::<usize>("connector.window", 1, 64, 64, "maximum unacknowledged events in flight to one gateway");
    MAX_SOCKETS: usize =
        count::<usize>("connector.max_sockets", 1, 1_000_000, 10_000, "maximum concurrent gateway connections");
    MAX_GATEWAYS: u32 = count::<u32>(
        "connector.max_gateways_per_tenant",
        1,
        100_000,
        64,
        "maximum gateways, and maximum agents, per tenant; revoked ones count for 30 days",
    );
    MAX_ENTRIES: usize =
        count::<usize>("connector.max_entries", 1, 1_000_000, 10_000, "maximum queued events per agent");
}
