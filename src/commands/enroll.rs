//! `petasos enroll`: credentials for a relay's connector, written to `.env` and shown to nobody.

use std::process::ExitCode;

use petasos_cli::arguments::Enroll;
use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::print::{self, GOOD, say, styled};
use petasos_config::keys;
use petasos_gateway::home;
use petasos_platforms::Secret;
use petasos_platforms::relay;
use serde_json::json;

use crate::wire::relay as wired;

const HIDDEN: &str = "<hidden>";

pub(crate) async fn enroll(context: &Context, wanted: Enroll) -> Result<ExitCode, Failure> {
    let resolved = petasos_config::load(&context.home);
    let settings = &resolved.settings;
    let token =
        wanted.token.or_else(|| settings.get(&keys::relay::ENROLL_TOKEN).map(|it| it.expose().to_owned()));
    let token = token.filter(|token| !token.trim().is_empty()).ok_or_else(|| {
        Failure::new("there is no enrollment token")
            .next("petasos enroll --token TOKEN; the connector's owner has one")
    })?;
    let url = wanted.connector_url.clone().or_else(|| wired::url(settings)).ok_or_else(|| {
        Failure::new("there is no address of a connector").next("petasos enroll --connector-url URL")
    })?;
    let gateway_id =
        wanted.gateway_id.or_else(|| settings.get(&keys::relay::ID)).unwrap_or_else(wired::default_id);
    let asked = relay::Enroll {
        url,
        token: Secret::new(token.trim()),
        gateway_id,
        wake_url: wanted.wake_url.clone().or_else(|| settings.get(&keys::relay::WAKE_URL)),
        instance_id: settings.get(&keys::relay::INSTANCE_ID),
        grant: wired::grant(settings),
    };
    let enrolled = relay::enroll(&asked).await.map_err(|refused| Failure::new(refused.to_string()))?;
    keep(context, &enrolled, wanted.connector_url.as_deref(), wanted.wake_url.as_deref())?;
    let id = &enrolled.credentials.gateway_id;
    let tenant = enrolled.tenant.as_deref().unwrap_or("-");
    if context.json {
        let told = json!({"gateway_id": id, "tenant": tenant, "secret": HIDDEN, "delivery_key": HIDDEN});
        print::json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{} enrolled as {id} (tenant {tenant}); its secret is in .env: {HIDDEN}", styled(GOOD, "✓"));
    Ok(ExitCode::SUCCESS)
}

/// All of it or nothing: the file is replaced whole.
fn keep(
    context: &Context,
    enrolled: &relay::Enrolled,
    url: Option<&str>,
    wake_url: Option<&str>,
) -> Result<(), Failure> {
    let credentials = &enrolled.credentials;
    let mut changes = vec![
        ("GATEWAY_RELAY_ID", Some(credentials.gateway_id.as_str())),
        ("GATEWAY_RELAY_SECRET", Some(credentials.secret.expose())),
        ("GATEWAY_RELAY_DELIVERY_KEY", enrolled.delivery_key.as_ref().map(Secret::expose)),
    ];
    changes.extend(url.map(|url| ("GATEWAY_RELAY_URL", Some(url))));
    changes.extend(wake_url.map(|url| ("GATEWAY_RELAY_WAKE_URL", Some(url))));
    let home = context.home.path();
    let kept = std::fs::create_dir_all(home).and_then(|()| home::env::set(home, &changes));
    kept.map_err(|error| Failure::new(format!("the credentials cannot be kept in .env: {error}")))
}
