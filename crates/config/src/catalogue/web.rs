//! The listener of the web page and the API, and the API for programs.

use std::time::Duration;

use petasos_core::Secret;
use serde_json::Value;

use super::any;
use crate::key::{count, flag, keys, list, seconds, secret, table, text_or};

keys! {
    ENABLED: bool = flag("web.enabled", true, "serve the web page");
    HOST: String = text_or("web.host", "127.0.0.1", "address the web page and the API server listen on")
        .verbatim()
        .env(&["API_SERVER_HOST"])
        .also(&["platforms.api_server.extra.host"]);
    PORT: u16 =
        count::<u16>("web.port", 0, 65_535, 8642, "port the web page and the API server listen on; 0 takes a free one")
            .env(&["API_SERVER_PORT"])
            .also(&["platforms.api_server.extra.port"]);
    API_ENABLED: Option<bool> = any::ENABLED
        .on("api_server")
        .help("serve the OpenAI-compatible API; default: where the web page is, or when there is a key")
        .env(&["API_SERVER_ENABLED"]);
    API_KEY: Option<Secret> = secret(
        "platforms.api_server.extra.key",
        "bearer key of the API; without any, one is made in the file api_key",
    )
    .env(&["API_SERVER_KEY"]);
    API_KEYS: Option<Value> = table(
        "platforms.api_server.extra.keys",
        "more keys by name: key, scopes (read, agent, admin), rate_limit",
    );
    API_ORIGINS: Vec<String> = list(
        "platforms.api_server.extra.cors_origins",
        "origins whose pages may call the API; * for all",
    )
    .env(&["API_SERVER_CORS_ORIGINS"]);
    API_MODEL_NAME: String =
        text_or("platforms.api_server.extra.model_name", "petasos", "name the API shows for the agent")
            .env(&["API_SERVER_MODEL_NAME"]);
    API_MODEL_ROUTES: Option<Value> =
        table("platforms.api_server.extra.model_routes", "model names that mean another model");
    API_MAX_RUNS: usize = count::<usize>(
        "gateway.api_server.max_concurrent_runs",
        0,
        10_000,
        10,
        "concurrent agent runs over the API (0 = no limit)",
    );
    API_QUEUE: Duration =
        seconds("gateway.api_server.queue_seconds", 1.0, "seconds a run may wait for its turn at that limit");
}
