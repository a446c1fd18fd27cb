//! `petasos enroll`: obtains credentials for a relay connector and writes them to `.env`. They are never
//! printed.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;

use petasos_cli::arguments::EnrollArguments;
use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::print::{self, SUCCESS, WARNING, errln, outln, styled};
use petasos_config::{Settings, keys};
use petasos_core::{InstanceId, TenantId};
use petasos_gateway::home;
use petasos_platforms::Secret;
use petasos_platforms::relay;
use serde_json::json;

use crate::wire::relay as wire_relay;

const HIDDEN: &str = "<hidden>";
/// Longer input is no token.
const MAX_TOKEN: u64 = 64 << 10;
const ARGUMENT_WARNING: &str = "other users of this machine can see the token in the process list; use --token-file FILE, or --token - to read it from stdin";

pub(crate) async fn enroll(context: &Context, arguments: EnrollArguments) -> Result<ExitCode, Failure> {
    let resolved = petasos_config::load_with_secrets(&context.home)?;
    let settings = &resolved.settings;
    let token = token(&arguments, settings)?;
    let url = arguments.connector_url.clone().or_else(|| wire_relay::url(settings)).ok_or_else(|| {
        Failure::new("no connector URL is given").next("petasos enroll --connector-url URL")
    })?;
    let gateway_id = arguments.gateway_id.unwrap_or_else(|| wire_relay::gateway_id(settings));
    let request = relay::Enroll {
        url,
        token,
        gateway_id,
        wake_url: arguments.wake_url.clone().or_else(|| settings.get(&keys::relay::WAKE_URL)),
        instance_id: settings.get(&keys::relay::INSTANCE_ID).map(InstanceId),
        grant: wire_relay::grant(settings),
    };
    let enrolled = relay::enroll(&request).await.map_err(|error| describe_refusal(&request.url, &error))?;
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

fn describe_refusal(url: &str, error: &relay::Refused) -> Failure {
    Failure::new(format!("enrollment at {url} failed: {error}"))
        .next("check the URL of the connector and the token, then enroll again")
}

/// The enrollment token from the arguments, standard input, a file or the settings.
fn token(arguments: &EnrollArguments, settings: &Settings) -> Result<Secret, Failure> {
    let given = match (arguments.token.as_deref(), &arguments.token_file) {
        (Some("-"), _) => {
            Some(read_token(io::stdin().lock()).map_err(|error| unreadable("standard input", &error))?)
        }
        (Some(argument), _) => {
            errln!("{} {ARGUMENT_WARNING}", styled(WARNING, "warning:"));
            Some(argument.to_owned())
        }
        (None, Some(path)) => {
            let read = File::open(path).and_then(read_token);
            Some(read.map_err(|error| unreadable(&path.display().to_string(), &error))?)
        }
        (None, None) => settings.get(&keys::relay::ENROLL_TOKEN).map(|it| it.expose().to_owned()),
    };
    let given = given.as_deref().map(str::trim).filter(|token| !token.is_empty());
    given.map(Secret::new).ok_or_else(|| {
        Failure::new("no enrollment token is given")
            .next("petasos enroll --token-file FILE; get a token from the owner of the connector")
    })
}

fn read_token(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_TOKEN).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(place: &str, error: &io::Error) -> Failure {
    Failure::new(format!("the enrollment token cannot be read from {place}: {error}"))
        .next("nothing was changed")
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
    let written = context.home.create().and_then(|()| home::env::set(home, &changes));
    written.map_err(|error| Failure::new(format!("the credentials cannot be written to .env: {error}")))
}
