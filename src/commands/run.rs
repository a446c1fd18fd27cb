//! `petasos run`: the gateway in the foreground, until it is asked to stop.

use std::process::ExitCode;

use petasos_gateway::{Handle, Phase};
use serde_json::json;

use super::{Context, warn};
use crate::config;
use crate::failure::Failure;
use crate::logs;
use crate::print::{BOLD, DIM, styled};
use crate::serve::{self, Serving};
use crate::signals::Signals;
use crate::wire::wire;

pub(crate) async fn run(context: &Context) -> Result<ExitCode, Failure> {
    let lock = serve::take(&context.home)?;
    let mut resolved = config::load(&context.home);
    let wired = wire(&context.home, &mut resolved).map_err(|problems| Failure::of_problems(&problems))?;
    warn(&resolved.problems);
    let signals = Signals::listen().map_err(|error| Failure::new(format!("no signals: {error}")))?;
    let serving = serve::start(&context.home, wired, lock).await?;
    greet(context, &serving).await?;
    tokio::spawn(obey(signals, serving.handle.clone()));
    match serving.wait().await {
        Phase::Failed => {
            let failure = Failure::new("the gateway stopped because a part of it failed");
            Err(failure.next("the log above says which; nothing that was accepted is lost"))
        }
        Phase::Running | Phase::Stopping => Ok(ExitCode::SUCCESS),
    }
}

/// The first signal stops, the second one does not wait.
async fn obey(mut signals: Signals, handle: Handle) {
    tokio::select! {
        first = signals.next() => tracing::info!(signal = first, "stopping"),
        // Somebody else asked; from here on a signal means "at once".
        () = handle.stopped() => {}
    }
    handle.shutdown();
    drop(handle);
    let second = signals.next().await;
    tracing::warn!(signal = second, "leaving at once; the next start takes up what was interrupted");
    logs::flush();
    std::process::exit(1);
}

async fn greet(context: &Context, serving: &Serving) -> Result<(), Failure> {
    let failed = |error: petasos_gateway::Error| Failure::new(error.to_string());
    let status = serving.handle.status().await.map_err(failed)?;
    let link = match &serving.url {
        Some(url) => {
            let token = serving.handle.login_link_token().await.map_err(failed)?;
            Some(format!("{url}/?token={token}"))
        }
        None => None,
    };
    if context.json {
        let told = json!({
            "event": "started", "pid": std::process::id(), "home": context.home.path(), "socket": serving.socket,
            "url": serving.url, "login_url": link, "model": status.model,
        });
        crate::print::say!("{told}");
        return Ok(());
    }
    let model = match status.model.demo {
        true => "demo model (scripted, offline; set a real one under `model:` in config.yaml)".to_owned(),
        false => format!("{} at {}", status.model.name, status.model.provider),
    };
    let line = |name: &str, text: &str| crate::print::say!("  {} {text}", styled(DIM, &format!("{name:<9}")));
    crate::print::say!("{}", styled(BOLD, &format!("Petasos {}", env!("CARGO_PKG_VERSION"))));
    line("home", &context.home.path().display().to_string());
    line("model", &model);
    for link in &status.links {
        line(link.name, "connecting");
    }
    if let Some(link) = &link {
        line("web page", &format!("{link} {}", styled(DIM, "(works once; `petasos open` makes another)")));
    }
    line("terminal", "petasos chat");
    crate::print::say!("{}", styled(DIM, "Ctrl-C stops."));
    Ok(())
}
