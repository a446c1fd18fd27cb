//! The relay, and sleep behind a connector.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::choices::SleepAction;
use crate::key::{choice, flag, keys, list, maybe, number, seconds, secret, table, text};

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on("relay").help("connect to the connector [default: if gateway.relay_url is set]");
    REQUIRE_MENTION: Option<bool> = maybe(
        "require_mention",
        "in groups over the relay, answer only if addressed, unless the platform has its own setting",
    );
    URL: Option<String> = text("gateway.relay_url", "URL of the connector")
        .env(&["GATEWAY_RELAY_URL"])
        .also(&["platforms.relay.extra.relay_url"]);
    PLATFORMS: Vec<String> = list(
        "gateway.relay_platforms",
        "platforms served over the relay; the first is the primary one",
    )
        .env(&["GATEWAY_RELAY_PLATFORMS"]);
    BOT_IDS: Option<Value> = table(
        "gateway.relay_bot_ids",
        "identity of the bot per platform: a map of platform to {botId, username}",
    )
    .env(&["GATEWAY_RELAY_BOT_IDS"]);
    ID: Option<String> = text("gateway.relay_id", "name of this gateway at the connector").env(&["GATEWAY_RELAY_ID"]);
    SECRET: Option<Secret> =
        secret(
            "gateway.relay_secret",
            "secret of this gateway at the connector; petasos enroll creates it",
        )
        .env(&["GATEWAY_RELAY_SECRET"]);
    INSTANCE_ID: Option<String> = text("gateway.relay_instance_id", "id of this agent, if one owner has several")
        .env(&["GATEWAY_RELAY_INSTANCE_ID"]);
    WAKE_URL: Option<String> =
        text("gateway.relay_wake_url", "URL that the connector calls to wake this gateway for queued events")
            .env(&["GATEWAY_RELAY_WAKE_URL"]);
    ROUTE_KEYS: Vec<String> = list(
        "gateway.relay_route_keys",
        "servers and workspaces whose messages go to this gateway",
    )
    .env(&["GATEWAY_RELAY_ROUTE_KEYS"]);
    ENROLL_TOKEN: Option<Secret> = secret("gateway.relay_enroll_token", "one-time token for petasos enroll")
        .env(&["GATEWAY_RELAY_ENROLL_TOKEN"])
        .live();
    RETRY_DENIAL: bool = flag(
        "gateway.relay_auth_retry_once",
        true,
        "retry once before accepting that the connector rejects the credentials",
    );
    RECONNECT_BASE: Duration =
        seconds(
            "gateway.relay_reconnect_base",
            1.0,
            "seconds before the first reconnect; later waits are multiples of it",
        );
    ANSWER_TIMEOUT: Duration =
        seconds("gateway.relay_answer_timeout", 30.0, "timeout for the connector's answer to a message, in seconds");
    IDP_TOKEN_URL: Option<String> = text(
        "gateway.idp.token_url",
        "token endpoint of an identity provider, to get credentials at every start",
    )
    .env(&["GATEWAY_RELAY_IDP_TOKEN_URL"]);
    IDP_CLIENT_ID: Option<String> =
        text("gateway.idp.client_id", "client id at the identity provider").env(&["GATEWAY_RELAY_IDP_CLIENT_ID"]);
    IDP_CLIENT_SECRET: Option<Secret> =
        secret(
            "gateway.idp.client_secret",
            "client secret at the identity provider",
        )
        .env(&["GATEWAY_RELAY_IDP_CLIENT_SECRET"]);
    IDP_SCOPE: Option<String> = text(
        "gateway.idp.scope",
        "scope to request from the identity provider",
    )
    .env(&["GATEWAY_RELAY_IDP_SCOPE"]);
    SLEEP: bool = flag("gateway.scale_to_zero.enabled", false, "sleep when idle; requires gateway.relay_wake_url")
        .env(&["HERMES_SCALE_TO_ZERO"]);
    SLEEP_AFTER_MINUTES: f64 =
        number(
            "gateway.scale_to_zero.idle_timeout_minutes",
            5.0,
            "minutes without activity before the gateway sleeps",
        )
        .forgiving();
    SLEEP_ACTION: SleepAction = choice::<SleepAction>(
        "gateway.scale_to_zero.action",
        "none",
        "how to sleep: none, exit (end the process; a supervisor must restart it), command (run a command that suspends the machine)",
    );
    SLEEP_COMMAND: Option<String> = text("gateway.scale_to_zero.command", "command that suspends the machine");
    SLEEP_TICK: Duration =
        seconds("gateway.scale_to_zero.tick_seconds", 30.0, "seconds between idle checks");
}
