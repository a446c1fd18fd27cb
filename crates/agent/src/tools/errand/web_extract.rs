//! `web_extract`: the text of web pages.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Errand;
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const URLS: usize = 5;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "web_extract",
        description: "Fetches web pages and gives their text. Only addresses of the open internet can be reached.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::None,
        reach: Reach::Turn,
        runner: Runner::errand(read),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Up to five addresses of pages
    #[serde(alias = "url")]
    #[schemars(with = "Vec<String>", length(max = URLS))]
    urls: OneOrMany,
}

/// Some models give one address without a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn read(arguments: Arguments) -> Result<Errand, String> {
    let urls = match arguments.urls {
        OneOrMany::One(url) => vec![url],
        OneOrMany::Many(urls) => urls,
    };
    if urls.is_empty() || urls.len() > URLS {
        return Err(format!("Give one to {URLS} addresses."));
    }
    Ok(Errand::Fetch { urls })
}
