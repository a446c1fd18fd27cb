//! The listener of the web page, and the API.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::key::{count, flag, keys, list, seconds, secret, table, text_or};

keys! {
    ENABLED: bool = flag("web.enabled", true, "serve the web page");
    HOST: String = text_or("web.host", "127.0.0.1", "listen address of the web page and the API server")
        .verbatim()
        .env(&["API_SERVER_HOST"])
        .also(&["platforms.api_server.extra.host"]);
    PORT: u16 =
        count::<u16>("web.port", 0, 65_535, 8642, "port of the web page and the API server (0 = any free port)")
            .env(&["API_SERVER_PORT"])
            .also(&["platforms.api_server.extra.port"]);
    API_ENABLED: Option<bool> = any::ENABLED
        .on("api_server")
        .help("serve the OpenAI-compatible API [default: if the web page is served or a key is set]")
        .env(&["API_SERVER_ENABLED"]);
    API_KEY: Option<Secret> = secret(
        "platforms.api_server.extra.key",
        "bearer key of the API [default: generated in the file api_key]",
    )
    .env(&["API_SERVER_KEY"]);
    API_KEYS: Option<Value> = table(
        "platforms.api_server.extra.keys",
        "additional keys by name: key, scopes (read, agent, admin), rate_limit",
    );
    API_ORIGINS: Vec<String> = list(
        "platforms.api_server.extra.cors_origins",
        "web origins that may call the API (* = all)",
    )
    .env(&["API_SERVER_CORS_ORIGINS"]);
    API_MODEL_NAME: String =
        text_or("platforms.api_server.extra.model_name", "petasos", "name of the agent in the API")
            .env(&["API_SERVER_MODEL_NAME"]);
    API_MODEL_ROUTES: Option<Value> =
        table("platforms.api_server.extra.model_routes", "model names of the API that select another model");
    API_MAX_RUNS: usize = count::<usize>(
        "gateway.api_server.max_concurrent_runs",
        0,
        10_000,
        10,
        "maximum concurrent agent runs over the API (0 = no limit)",
    );
    API_QUEUE: Duration =
        seconds(
            "gateway.api_server.queue_seconds",
            1.0,
            "seconds that a run may wait when max_concurrent_runs is reached",
        );
}
