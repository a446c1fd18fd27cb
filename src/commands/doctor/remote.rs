//! Checks of the model and the platforms. They contact the servers only with `--online`.

use std::time::Duration;

use petasos_agent::{ModelConfig, Provider};
use petasos_config::Settings;
use petasos_config::keys::telegram;
use petasos_core::Fault;
use petasos_platforms::{Adapter, AdapterKind};
use serde_json::Value;

use super::Finding;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn model(model: &ModelConfig, online: bool) -> Finding {
    let shown = format!("{} at {}", model.model, model.provider.as_str());
    if model.provider == Provider::Demo {
        let advice = "set OPENAI_API_KEY or ANTHROPIC_API_KEY in .env, or a model section in config.yaml";
        return Finding::warn("model", "demo model: answers are scripted", advice);
    }
    let Some(base) = model.base_url.as_deref().or(model.provider.default_base_url()) else {
        return Finding::fail("model", format!("{shown} has no address"), "set model.base_url");
    };
    if !online {
        return Finding::ok("model", format!("{shown} (--online tests it)"));
    }
    match fetch(base).await {
        Ok(_) => Finding::ok("model", format!("{shown} answers")),
        Err(reason) => {
            Finding::fail("model", format!("{shown} does not answer: {reason}"), "check model.base_url")
        }
    }
}

async fn telegram(settings: &Settings, online: bool) -> Finding {
    let Some(token) = settings.get(&telegram::TOKEN) else {
        return Finding::ok("telegram", "not configured");
    };
    let token = token.expose();
    let shaped = token.split_once(':').is_some_and(|(id, secret)| {
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) && !secret.is_empty()
    });
    if !shaped {
        let advice = "a token looks like 123456789:AA…; get it from @BotFather with /token";
        return Finding::fail("telegram", "the token has the wrong format", advice);
    }
    if !online {
        return Finding::ok("telegram", "token set (--online tests it)");
    }
    let base = settings.get(&telegram::BASE_URL);
    let response = fetch(&format!("{base}{token}/getMe")).await;
    match response
        .as_ref()
        .map(|(status, body)| (*status, body.pointer("/result/username").and_then(Value::as_str)))
    {
        Ok((200, Some(name))) => Finding::ok("telegram", format!("the token works; the bot is @{name}")),
        Ok((401 | 404, _)) => Finding::fail(
            "telegram",
            "Telegram does not accept this token",
            "get a new one from @BotFather with /token",
        ),
        Ok((status, _)) => {
            Finding::warn("telegram", format!("Telegram answered {status}"), "try again later")
        }
        Err(reason) => {
            Finding::fail("telegram", format!("not reachable: {reason}"), "check the network and the proxy")
        }
    }
}

/// The platforms, each in the way that fits its credentials.
pub(super) async fn platforms(settings: &Settings, adapters: &[Adapter], online: bool) -> Vec<Finding> {
    let mut findings = vec![telegram(settings, online).await];
    for adapter in adapters {
        match adapter.kind() {
            // Checked above, because a malformed token is reported even if it gives no adapter.
            AdapterKind::Telegram => {}
            AdapterKind::Discord | AdapterKind::Slack | AdapterKind::Webhook | AdapterKind::External(_) => {
                findings.push(account(adapter, online).await);
            }
        }
    }
    findings
}

/// Asks the server whose account the credentials of an adapter are.
async fn account(adapter: &Adapter, online: bool) -> Finding {
    let name = adapter.platform().as_str();
    if !online {
        return Finding::ok(name, "configured (--online tests it)");
    }
    match tokio::time::timeout(REQUEST_TIMEOUT, adapter.check()).await {
        Ok(Ok(account)) => Finding::ok(name, format!("the credentials work: {account}")),
        Ok(Err(error)) if error.fault() == Fault::Fatal => Finding::fail(
            name,
            error.to_string(),
            "the gateway stays disconnected from this platform until this is corrected",
        ),
        Ok(Err(error)) => Finding::warn(name, error.to_string(), "try again later"),
        Err(_elapsed) => Finding::warn(name, "no answer", "check the network and the proxy"),
    }
}

/// The URL may contain a secret, so errors omit it.
async fn fetch(url: &str) -> Result<(u16, Value), String> {
    let without_url = |error: reqwest::Error| error.without_url().to_string();
    let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build().map_err(without_url)?;
    let response = client.get(url).send().await.map_err(without_url)?;
    let status = response.status().as_u16();
    Ok((status, response.json().await.unwrap_or_default()))
}
