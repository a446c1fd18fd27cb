//! The webhook listener.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::key::{count, keys, list_or, seconds, secret, table, text_or};

keys! {
    ENABLED: Option<bool> = any::ENABLED
        .on("webhook")
        .help("listen for webhook deliveries [default: if there are routes]")
        .env(&["WEBHOOK_ENABLED"]);
    HOST: String = text_or(
        "platforms.webhook.extra.host",
        "127.0.0.1",
        "listen address; 0.0.0.0 (or ::, also IPv6) accepts connections from other machines",
    )
    .env(&["WEBHOOK_HOST"]);
    PORT: u16 = count::<u16>(
        "platforms.webhook.extra.port",
        1,
        65_535,
        8644,
        "port to listen on",
    )
    .env(&["WEBHOOK_PORT"]);
    SECRET: Option<Secret> = secret("platforms.webhook.extra.secret", "secret of routes without their own secret")
        .env(&["WEBHOOK_SECRET"]);
    ROUTES: Option<Value> = table(
        "platforms.webhook.extra.routes",
        "routes by name: secret, events, filters, prompt, deliver, deliver_extra, deliver_only, enabled",
    );
    TOOLS: Vec<String> = list_or(
        "platforms.webhook.extra.tools",
        &["clock"],
        "enabled tools that a turn started by a delivery may use; its text may come from a stranger",
    );
    RATE_LIMIT: u32 =
        count::<u32>("platforms.webhook.extra.rate_limit", 1, 100_000, 30, "maximum deliveries per route and minute");
    MAX_BODY: usize =
        count::<usize>(
            "platforms.webhook.extra.max_body_bytes",
            1,
            8_388_608,
            1_048_576,
            "maximum size of a delivery, in bytes",
        );
    DELIVERY_WAIT: Duration = seconds(
        "platforms.webhook.extra.delivery_wait",
        10.0,
        "seconds that a caller waits for the delivery of a deliver_only message",
    );
    GITHUB_TOKEN: Option<Secret> = secret(
        "platforms.webhook.extra.github_token",
        "token for comments (deliver: github_comment)",
    )
    .env(&["GITHUB_TOKEN", "GH_TOKEN"]);
    GITHUB_API: String =
        text_or("platforms.webhook.extra.github_api", "https://api.github.com", "base URL of GitHub's API");
    REQUEST_TIMEOUT: Duration = seconds(
        "platforms.webhook.extra.request_timeout",
        20.0,
        "timeout of a request to GitHub, in seconds",
    );
}
