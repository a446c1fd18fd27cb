//! The webhook listener.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::key::{count, keys, list_or, seconds, secret, table, text_or};

keys! {
    ENABLED: Option<bool> = any::ENABLED
        .on("webhook")
        .help("listen for deliveries; default: when there are routes")
        .env(&["WEBHOOK_ENABLED"]);
    HOST: String = text_or(
        "platforms.webhook.extra.host",
        "127.0.0.1",
        "where to listen; 0.0.0.0 (or :: for IPv6 as well) lets other machines in",
    )
    .env(&["WEBHOOK_HOST"]);
    PORT: u16 = count::<u16>("platforms.webhook.extra.port", 1, 65_535, 8644, "port to listen on").env(&["WEBHOOK_PORT"]);
    SECRET: Option<Secret> = secret("platforms.webhook.extra.secret", "secret of routes that have none of their own")
        .env(&["WEBHOOK_SECRET"]);
    ROUTES: Option<Value> = table(
        "platforms.webhook.extra.routes",
        "name -> secret, events, filters, prompt, deliver, deliver_extra, deliver_only, enabled",
    );
    TOOLS: Vec<String> = list_or(
        "platforms.webhook.extra.tools",
        &["clock"],
        "tools of turns that a delivery starts, of those that are on: its text may be a stranger's",
    );
    RATE_LIMIT: u32 =
        count::<u32>("platforms.webhook.extra.rate_limit", 1, 100_000, 30, "deliveries of one route in a minute");
    MAX_BODY: usize =
        count::<usize>("platforms.webhook.extra.max_body_bytes", 1, 8_388_608, 1_048_576, "largest delivery");
    DELIVERY_WAIT: Duration = seconds(
        "platforms.webhook.extra.delivery_wait",
        10.0,
        "seconds a caller waits for the delivery of a deliver_only message",
    );
    GITHUB_TOKEN: Option<Secret> = secret(
        "platforms.webhook.extra.github_token",
        "token for comments (deliver: github_comment)",
    )
    .env(&["GITHUB_TOKEN", "GH_TOKEN"]);
    GITHUB_API: String =
        text_or("platforms.webhook.extra.github_api", "https://api.github.com", "where GitHub's API is");
    REQUEST_TIMEOUT: Duration = seconds(
        "platforms.webhook.extra.request_timeout",
        20.0,
        "timeout in seconds of a request to GitHub",
    );
}
