//! The keys of a connector (`petasos connector run`).

use std::time::Duration;

use serde_json::Value;

use crate::key::{count, flag, keys, list, seconds, table, text, text_or};

keys! {
    LISTEN: String = text_or(
        "connector.listen",
        "127.0.0.1:8655",
        "address and port a connector listens on for its gateways; port 0 takes a free one",
    );
    PUBLIC_URL: Option<String> =
        text("connector.public_url", "address under which gateways reach it, if it is another one");
    SINGLE_INSTANCE: Option<String> =
        text("connector.single_instance", "the one agent that gets the messages of everybody who may talk");
    PLATFORMS: Option<Value> =
        table("connector.platforms", "the platforms of a connector, written as in platforms");
    ALLOW_ALL_USERS: bool =
        flag("connector.allow_all_users", false, "anybody may talk to the agent of single_instance");
    ALLOWED_USERS: Vec<String> =
        list("connector.allowed_users", "people (ids) who may, on every platform of the connector");
    WAKE_HOSTS: Vec<String> = list(
        "connector.wake_hosts",
        "hosts (host or host:port) whose wake addresses may be local, or plain HTTP",
    );
    DURABLE_LIVE: bool = flag(
        "connector.durable_live",
        true,
        "keep every event until the gateway has acknowledged it, also while it is connected",
    );
    WAKE_COOLDOWN: Duration =
        seconds("connector.wake_cooldown", 60.0, "seconds between two calls of one wake address");
    WINDOW: usize =
        count::<usize>("connector.window", 1, 64, 64, "events sent ahead of their acknowledgement, once nothing waits");
    MAX_SOCKETS: usize =
        count::<usize>("connector.max_sockets", 1, 1_000_000, 10_000, "gateways that may be connected at the same time");
    MAX_GATEWAYS: u32 = count::<u32>(
        "connector.max_gateways_per_tenant",
        1,
        100_000,
        64,
        "gateways, and agents, that one tenant may provision or enroll; revoked ones count for 30 days",
    );
    MAX_ENTRIES: usize =
        count::<usize>("connector.max_entries", 1, 1_000_000, 10_000, "events that may wait for one agent");
}
