//! What depends on others: the model and the platforms. Asked only with `--online`.

use std::time::Duration;

use petasos_agent::{ModelConfig, Provider};
use petasos_config::Settings;
use petasos_config::keys::telegram;
use petasos_core::Fault;
use petasos_platforms::Adapter;
use serde_json::Value;

use super::Finding;

const PATIENCE: Duration = Duration::from_secs(8);

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
        return Finding::ok("model", format!("{shown} (--online asks whether it answers)"));
    }
    match fetch(base).await {
        Ok(_) => Finding::ok("model", format!("{shown} answers")),
        Err(reason) => {
            Finding::fail("model", format!("{shown} does not answer: {reason}"), "check model.base_url")
        }
    }
}

pub(super) async fn telegram(settings: &Settings, online: bool) -> Finding {
    let Some(token) = settings.get(&telegram::TOKEN) else {
        return Finding::ok("telegram", "not set up");
    };
    let token = token.expose();
    let shaped = token.split_once(':').is_some_and(|(id, secret)| {
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) && !secret.is_empty()
    });
    if !shaped {
        let advice = "it looks like 123456789:AA…; ask @BotFather for /token";
        return Finding::fail("telegram", "the token has not the shape of one", advice);
    }
    if !online {
        return Finding::ok("telegram", "there is a token (--online asks whether it works)");
    }
    let base = settings.get(&telegram::BASE_URL);
    let asked = fetch(&format!("{base}{token}/getMe")).await;
    match asked
        .as_ref()
        .map(|(status, body)| (*status, body.pointer("/result/username").and_then(Value::as_str)))
    {
        Ok((200, Some(name))) => Finding::ok("telegram", format!("the token works; the bot is @{name}")),
        Ok((401 | 404, _)) => Finding::fail(
            "telegram",
            "Telegram does not know this token",
            "ask @BotFather for a new one with /token",
        ),
        Ok((status, _)) => {
            Finding::warn("telegram", format!("Telegram answered {status}"), "try again later")
        }
        Err(reason) => {
            Finding::fail("telegram", format!("not reachable: {reason}"), "check network and proxy")
        }
    }
}

/// Every other platform that is set up.
pub(super) async fn platforms(adapters: &[Adapter], online: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for adapter in adapters.iter().filter(|adapter| !matches!(adapter, Adapter::Telegram(_))) {
        findings.push(platform(adapter, online).await);
    }
    findings
}

async fn platform(adapter: &Adapter, online: bool) -> Finding {
    let name = adapter.platform().as_str();
    if !online {
        return Finding::ok(name, "set up (--online asks whether it works)");
    }
    match tokio::time::timeout(PATIENCE, adapter.check()).await {
        Ok(Ok(who)) => Finding::ok(name, format!("the credentials work: {who}")),
        Ok(Err(error)) if error.fault() == Fault::Fatal => {
            Finding::fail(name, error.to_string(), "the gateway stays off there until this is done")
        }
        Ok(Err(error)) => Finding::warn(name, error.to_string(), "try again later"),
        Err(_elapsed) => Finding::warn(name, "no answer", "check network and proxy"),
    }
}

/// The address may hold a secret, so errors are told without it.
async fn fetch(url: &str) -> Result<(u16, Value), String> {
    let told = |error: reqwest::Error| error.without_url().to_string();
    let client = reqwest::Client::builder().timeout(PATIENCE).build().map_err(told)?;
    let response = client.get(url).send().await.map_err(told)?;
    let status = response.status().as_u16();
    Ok((status, response.json().await.unwrap_or_default()))
}
