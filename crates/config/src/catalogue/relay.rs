//! The relay, and sleeping behind it.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::choices::SleepAction;
use crate::key::{choice, flag, keys, list, maybe, number, seconds, secret, table, text};

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on("relay").help("connect to the connector; default: when there is an address");
    REQUIRE_MENTION: Option<bool> = maybe(
        "require_mention",
        "over the relay: in groups, answer only when addressed, on platforms that do not say themselves",
    );
    URL: Option<String> = text("gateway.relay_url", "address of the connector")
        .env(&["GATEWAY_RELAY_URL"])
        .also(&["platforms.relay.extra.relay_url"]);
    PLATFORMS: Vec<String> = list("gateway.relay_platforms", "platforms that come over the relay; the first one leads")
        .env(&["GATEWAY_RELAY_PLATFORMS"]);
    BOT_IDS: Option<Value> = table("gateway.relay_bot_ids", "platform -> {botId, username}").env(&["GATEWAY_RELAY_BOT_IDS"]);
    ID: Option<String> = text("gateway.relay_id", "name of this gateway at the connector").env(&["GATEWAY_RELAY_ID"]);
    SECRET: Option<Secret> =
        secret("gateway.relay_secret", "its secret; petasos enroll gets one").env(&["GATEWAY_RELAY_SECRET"]);
    INSTANCE_ID: Option<String> = text("gateway.relay_instance_id", "which agent this is, among several of one owner")
        .env(&["GATEWAY_RELAY_INSTANCE_ID"]);
    WAKE_URL: Option<String> =
        text("gateway.relay_wake_url", "address that the connector calls to wake this gateway for waiting events")
            .env(&["GATEWAY_RELAY_WAKE_URL"]);
    ROUTE_KEYS: Vec<String> = list(
        "gateway.relay_route_keys",
        "servers and workspaces whose messages this gateway gets",
    )
    .env(&["GATEWAY_RELAY_ROUTE_KEYS"]);
    ENROLL_TOKEN: Option<Secret> = secret("gateway.relay_enroll_token", "token that petasos enroll shows, once")
        .env(&["GATEWAY_RELAY_ENROLL_TOKEN"])
        .live();
    RETRY_DENIAL: bool = flag(
        "gateway.relay_auth_retry_once",
        true,
        "try once more before a refusal by the connector counts",
    );
    RECONNECT_BASE: Duration =
        seconds("gateway.relay_reconnect_base", 1.0, "first wait, in seconds, before connecting again");
    ANSWER_TIMEOUT: Duration =
        seconds("gateway.relay_answer_timeout", 30.0, "seconds the answer to a message may take");
    IDP_TOKEN_URL: Option<String> = text(
        "gateway.idp.token_url",
        "token endpoint of an identity provider, for credentials at every start",
    )
    .env(&["GATEWAY_RELAY_IDP_TOKEN_URL"]);
    IDP_CLIENT_ID: Option<String> =
        text("gateway.idp.client_id", "client id there").env(&["GATEWAY_RELAY_IDP_CLIENT_ID"]);
    IDP_CLIENT_SECRET: Option<Secret> =
        secret("gateway.idp.client_secret", "client secret there").env(&["GATEWAY_RELAY_IDP_CLIENT_SECRET"]);
    IDP_SCOPE: Option<String> = text("gateway.idp.scope", "scope to ask for there").env(&["GATEWAY_RELAY_IDP_SCOPE"]);
    SLEEP: bool = flag("gateway.scale_to_zero.enabled", false, "sleep when idle; needs a wake address")
        .env(&["HERMES_SCALE_TO_ZERO"]);
    SLEEP_AFTER_MINUTES: f64 =
        number("gateway.scale_to_zero.idle_timeout_minutes", 5.0, "idle minutes before sleep").forgiving();
    SLEEP_ACTION: SleepAction = choice::<SleepAction>(
        "gateway.scale_to_zero.action",
        "none",
        "exit the process (something else starts it again), or run a command that suspends the machine",
    );
    SLEEP_COMMAND: Option<String> = text("gateway.scale_to_zero.command", "command that suspends the machine");
    SLEEP_TICK: Duration =
        seconds("gateway.scale_to_zero.tick_seconds", 30.0, "seconds between two checks for idleness");
}
