//! The keys of the relay and of sleeping behind it.

use super::Key;
use super::Kind::{Choice, Flag, List, Number, Secret, Table, Text};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help)
}

pub(super) const KEYS: &[Key] = &[
    key("platforms.relay.enabled", Flag, "", "dial the connector; default: when there is an address"),
    key(
        "require_mention",
        Flag,
        "",
        "over the relay: in groups, answer only when addressed, on platforms that do not say themselves",
    ),
    key("gateway.relay_url", Text, "", "address of the connector")
        .env(&["GATEWAY_RELAY_URL"])
        .also(&["platforms.relay.extra.relay_url"]),
    key("gateway.relay_platforms", List, "", "platforms that come over the relay; the first one leads")
        .env(&["GATEWAY_RELAY_PLATFORMS"]),
    key("gateway.relay_bot_ids", Table, "", "platform -> {botId, username}").env(&["GATEWAY_RELAY_BOT_IDS"]),
    key("gateway.relay_id", Text, "", "name of this gateway at the connector").env(&["GATEWAY_RELAY_ID"]),
    key("gateway.relay_secret", Secret, "", "its secret; petasos enroll gets one")
        .env(&["GATEWAY_RELAY_SECRET"]),
    key("gateway.relay_instance_id", Text, "", "which agent this is, among several of one owner")
        .env(&["GATEWAY_RELAY_INSTANCE_ID"]),
    key("gateway.relay_wake_url", Text, "", "address that the connector calls when something waits for us")
        .env(&["GATEWAY_RELAY_WAKE_URL"]),
    key("gateway.relay_route_keys", List, "", "servers and workspaces whose messages are ours")
        .env(&["GATEWAY_RELAY_ROUTE_KEYS"]),
    key("gateway.relay_enroll_token", Secret, "", "what petasos enroll shows, once")
        .env(&["GATEWAY_RELAY_ENROLL_TOKEN"]),
    key(
        "gateway.relay_auth_retry_once",
        Flag,
        "true",
        "try once more before believing that we are not wanted",
    ),
    key("gateway.relay_reconnect_base", Number, "1", "first wait, in seconds, before dialling again"),
    key("gateway.relay_answer_timeout", Number, "30", "seconds the answer to a message may take"),
    key("gateway.idp.token_url", Text, "", "where we prove who we are, for credentials at every start")
        .env(&["GATEWAY_RELAY_IDP_TOKEN_URL"]),
    key("gateway.idp.client_id", Text, "", "our name there").env(&["GATEWAY_RELAY_IDP_CLIENT_ID"]),
    key("gateway.idp.client_secret", Secret, "", "our secret there")
        .env(&["GATEWAY_RELAY_IDP_CLIENT_SECRET"]),
    key("gateway.scale_to_zero.enabled", Flag, "false", "sleep when nobody needs us; takes a wake address")
        .env(&["HERMES_SCALE_TO_ZERO"]),
    key("gateway.scale_to_zero.idle_timeout_minutes", Number, "5", "nobody has written for so long")
        .forgiving(),
    key(
        "gateway.scale_to_zero.action",
        Choice(&["none", "exit", "command"]),
        "none",
        "end the process (somebody starts it again), or run a command that suspends the machine",
    ),
    key("gateway.scale_to_zero.command", Text, "", "what suspends the machine"),
    key(
        "gateway.scale_to_zero.tick_seconds",
        Number,
        "30",
        "how often we look whether there is something to do",
    ),
    key("gateway.idp.scope", Text, "", "what we ask for there").env(&["GATEWAY_RELAY_IDP_SCOPE"]),
];
