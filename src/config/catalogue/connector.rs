//! The keys of a connector (`petasos connector run`).

use super::Key;
use super::Kind::{Count, Flag, List, Number, Table, Text};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help)
}

pub(super) const KEYS: &[Key] = &[
    key(
        "connector.listen",
        Text,
        "127.0.0.1:8655",
        "address and port a connector listens on for its gateways; port 0 takes a free one",
    ),
    key("connector.public_url", Text, "", "address under which gateways reach it, if it is another one"),
    key("connector.single_instance", Text, "", "the one agent that everybody belongs to who may talk"),
    key("connector.platforms", Table, "", "the platforms a connector holds, written as in platforms"),
    key("connector.allow_all_users", Flag, "false", "anybody may talk to the agent of single_instance"),
    key("connector.allowed_users", List, "", "people (ids) who may, on every platform of the connector"),
    key(
        "connector.wake_hosts",
        List,
        "",
        "hosts (host or host:port) whose wake addresses may be near, or plain HTTP",
    ),
    key(
        "connector.durable_live",
        Flag,
        "true",
        "keep every event until the gateway has acknowledged it, also while it is connected",
    ),
    key("connector.wake_cooldown", Number, "60", "seconds between two calls of one wake address"),
    key(
        "connector.window",
        Count(1, 64),
        "64",
        "events sent ahead of their acknowledgement, once nothing waits",
    ),
    key("connector.max_sockets", Count(1, 1_000_000), "10000", "gateways that may be connected at once"),
    key(
        "connector.max_gateways_per_tenant",
        Count(1, 100_000),
        "64",
        "gateways, and agents, that one tenant may provision or enroll; revoked ones count for 30 days",
    ),
    key("connector.max_entries", Count(1, 1_000_000), "10000", "events that may wait for one agent"),
];
