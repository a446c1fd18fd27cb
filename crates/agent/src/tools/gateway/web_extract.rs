//! The `web_extract` tool: the text of web pages.

use schemars::JsonSchema;
use serde::Deserialize;

use super::GatewayCall;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const URLS: usize = 5;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "web_extract",
        description: "Fetches web pages and returns their text. Only public internet addresses can be reached.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::None,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::gateway(parse_call),
    }
}

#[derive(Deserialize, JsonSchema)]
struct WebExtractArguments {
    /// Up to five page addresses
    #[serde(alias = "url")]
    #[schemars(with = "Vec<String>", length(max = URLS))]
    urls: OneOrMany,
}

/// Some models send one address without a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn parse_call(arguments: WebExtractArguments) -> Result<GatewayCall, String> {
    let urls = match arguments.urls {
        OneOrMany::One(url) => vec![url],
        OneOrMany::Many(urls) => urls,
    };
    if urls.is_empty() || urls.len() > URLS {
        return Err(format!("Give one to {URLS} addresses."));
    }
    Ok(GatewayCall::Fetch { urls })
}
