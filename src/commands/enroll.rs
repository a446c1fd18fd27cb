//! `petasos enroll`: obtains credentials for a relay connector and writes them to `.env`. They are never
//! printed.

use std::process::ExitCode;

use petasos_cli::arguments::EnrollArguments;
use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::print::{self, SUCCESS, outln, styled};
use petasos_config::keys;
use petasos_core::{InstanceId, TenantId};
use petasos_gateway::home;
use petasos_platforms::Secret;
use petasos_platforms::relay;
use serde_json::json;

use crate::wire::relay as wire_relay;

const HIDDEN: &str = "<hidden>";

pub(crate) async fn enroll(context: &Context, arguments: EnrollArguments) -> Result<ExitCode, Failure> {
    let resolved = petasos_config::load(&context.home);
    let settings = &resolved.settings;
    let token =
        arguments.token.or_else(|| settings.get(&keys::relay::ENROLL_TOKEN).map(|it| it.expose().to_owned()));
    let token = token.filter(|token| !token.trim().is_empty()).ok_or_else(|| {
        Failure::new("no enrollment token is given")
            .next("petasos enroll --token TOKEN; get one from the owner of the connector")
    })?;
    let url = arguments.connector_url.clone().or_else(|| wire_relay::url(settings)).ok_or_else(|| {
        Failure::new("no connector address is given").next("petasos enroll --connector-url URL")
    })?;
    let gateway_id = arguments.gateway_id.unwrap_or_else(|| wire_relay::gateway_id(settings));
    let request = relay::Enroll {
        url,
        token: Secret::new(token.trim()),
        gateway_id,
        wake_url: arguments.wake_url.clone().or_else(|| settings.get(&keys::relay::WAKE_URL)),
        instance_id: settings.get(&keys::relay::INSTANCE_ID).map(InstanceId),
        grant: wire_relay::grant(settings),
    };
    let enrolled = relay::enroll(&request).await.map_err(|refused| Failure::new(refused.to_string()))?;
    store_credentials(context, &enrolled, arguments.connector_url.as_deref(), arguments.wake_url.as_deref())?;
    let id = &enrolled.credentials.gateway_id;
    let tenant = enrolled.tenant.as_ref().map_or("-", TenantId::as_str);
    if context.json {
        let output = json!({"gateway_id": id, "tenant": tenant, "secret": HIDDEN, "delivery_key": HIDDEN});
        print::json(&output)?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!(
        "{} Enrolled as {id} (tenant {tenant}); the secret was written to .env: {HIDDEN}",
        styled(SUCCESS, "✓")
    );
    Ok(ExitCode::SUCCESS)
}

fn store_credentials(
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
    let written = std::fs::create_dir_all(home).and_then(|()| home::env::set(home, &changes));
    written.map_err(|error| Failure::new(format!("the credentials cannot be written to .env: {error}")))
}
