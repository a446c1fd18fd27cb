//! `petasos open`: a link that lets one browser in, once.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use super::Context;
use crate::client::Client;
use crate::failure::Failure;
use crate::print;

#[derive(Deserialize)]
struct Link {
    token: String,
}

pub async fn open(context: &Context) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let Some(url) = client.url.clone() else {
        return Err(
            Failure::new("this gateway serves no web page").next("set web.enabled: true and restart it")
        );
    };
    let link: Link = client.post("/api/login-link", &json!({})).await?;
    let link = format!("{url}/?token={}", link.token);
    if context.json {
        print::json(&json!({ "url": link }))?;
    } else {
        crate::print::say!("{link}");
    }
    Ok(ExitCode::SUCCESS)
}
