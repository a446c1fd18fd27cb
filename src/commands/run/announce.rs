//! Announces a started gateway: its addresses and how to use it.

use std::io::IsTerminal;

use petasos_cli::commands::Context;
use petasos_cli::commands::drain::request_summary;
use petasos_cli::commands::links::link_summary;
use petasos_cli::failure::Failure;
use petasos_cli::print::{BOLD, DIM, WARNING, outln, styled};
use petasos_core::lifecycle::stamp;
use petasos_core::link::State;
use petasos_gateway::{GatewayStatus, Handle};
use serde_json::json;

use crate::serve::RunningPetasos;

/// Set for a successor that its predecessor started. A gateway starts no other copy of this program; if that
/// changes, the variable must not be passed on.
pub(super) const SUCCESSOR: &str = "PETASOS_RELAUNCHED";

pub(super) async fn print(context: &Context, petasos: &RunningPetasos) -> Result<(), Failure> {
    let status = petasos.handle.status().await.map_err(failed)?;
    if context.json {
        let link = login_url(&petasos.handle, petasos.url.as_deref()).await?;
        let text = json!({
            "event": "started", "pid": std::process::id(), "home": context.home.path(), "socket": petasos.socket,
            "url": petasos.url, "login_url": link, "model": status.model,
        });
        outln!("{text}");
        return Ok(());
    }
    if std::env::var_os(SUCCESSOR).is_some_and(|value| value == "1") {
        outln!("Petasos now runs in the background (pid {}); petasos stop stops it", std::process::id());
        return Ok(());
    }
    let terminal = std::io::stdout().is_terminal();
    outln!("{}", styled(BOLD, &format!("Petasos {}", env!("CARGO_PKG_VERSION"))));
    line("home", &context.home.path().display().to_string());
    print_status(&status);
    if let Some(url) = &petasos.url {
        line("web page", &page_link(&petasos.handle, url, terminal).await?);
    }
    line("terminal", "petasos chat");
    if terminal {
        outln!("{}", styled(DIM, "Press Ctrl-C to stop; running turns finish first."));
    }
    Ok(())
}

fn print_status(status: &GatewayStatus) {
    let model = if status.model.demo {
        "demo model (scripted, offline; set a real one under `model:` in config.yaml)".to_owned()
    } else {
        format!("{} at {}", status.model.name, status.model.provider)
    };
    line("model", &model);
    if let Some(drain) = &status.lifecycle.drain {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        let asked = request_summary(drain.principal.as_deref(), at, drain.reason.as_deref());
        line(
            "drain",
            &styled(WARNING, &format!("no new turns start, {asked} (petasos resume ends the drain)")),
        );
    }
    for link in &status.links {
        let text = match link.link.state {
            State::Connecting { .. } => "connecting".to_owned(),
            State::Up { .. } | State::Waiting { .. } | State::Fatal { .. } | State::Paused => {
                link_summary(&link.link)
            }
        };
        line(link.name, &text);
    }
}

/// A sign-in link is printed only to a terminal, never to a log.
async fn page_link(handle: &Handle, url: &str, terminal: bool) -> Result<String, Failure> {
    if !terminal {
        return Ok(format!("{url} (petasos open prints a sign-in link)"));
    }
    let link = login_url(handle, Some(url)).await?.unwrap_or_default();
    Ok(format!("{link} {}", styled(DIM, "(works once; petasos open prints a new one)")))
}

async fn login_url(handle: &Handle, url: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(url) = url else { return Ok(None) };
    let token = handle.login_link_token().await.map_err(failed)?;
    Ok(Some(format!("{url}/?token={token}")))
}

fn failed(error: petasos_gateway::Error) -> Failure {
    Failure::new(error.to_string())
}

fn line(name: &str, text: &str) {
    outln!("  {} {text}", styled(DIM, &format!("{name:<9}")));
}
