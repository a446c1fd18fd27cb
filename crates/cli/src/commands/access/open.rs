//! `petasos open`: prints a one-time sign-in link.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print;

#[derive(Deserialize)]
struct LoginLinkResponse {
    token: String,
}

pub async fn open(context: &Context) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let Some(url) = client.url.clone() else {
        return Err(
            Failure::new("this gateway serves no web page").next("set web.enabled: true and restart it")
        );
    };
    let response: LoginLinkResponse = client.post("/api/login-link", &json!({})).await?;
    let link = format!("{url}/?token={}", response.token);
    if context.json {
        print::json(&json!({ "url": link }))?;
    } else {
        crate::print::outln!("{link}");
    }
    Ok(ExitCode::SUCCESS)
}
