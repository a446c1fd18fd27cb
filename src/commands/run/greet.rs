//! The first words of a gateway: where it is, and how to talk to it.

use std::io::IsTerminal;

use petasos_cli::commands::Context;
use petasos_cli::commands::drain::asked_for;
use petasos_cli::commands::links::state_of;
use petasos_cli::failure::Failure;
use petasos_cli::print::{BOLD, DIM, ODD, say, styled};
use petasos_core::lifecycle::stamp;
use petasos_core::link::State;
use petasos_gateway::{Handle, Status};
use serde_json::json;

use crate::serve::Serving;

/// Set for a process that took over from one that nobody would have started again. A gateway starts no other program
/// but its successor; whoever adds one must not pass this on.
pub(super) const RELAUNCHED: &str = "PETASOS_RELAUNCHED";

pub(super) async fn greet(context: &Context, serving: &Serving) -> Result<(), Failure> {
    let status = serving.handle.status().await.map_err(failed)?;
    if context.json {
        let link = login_url(&serving.handle, serving.url.as_deref()).await?;
        let told = json!({
            "event": "started", "pid": std::process::id(), "home": context.home.path(), "socket": serving.socket,
            "url": serving.url, "login_url": link, "model": status.model,
        });
        say!("{told}");
        return Ok(());
    }
    if std::env::var_os(RELAUNCHED).is_some_and(|value| value == "1") {
        say!("Petasos runs in the background now (pid {}); petasos stop ends it", std::process::id());
        return Ok(());
    }
    let terminal = std::io::stdout().is_terminal();
    say!("{}", styled(BOLD, &format!("Petasos {}", env!("CARGO_PKG_VERSION"))));
    line("home", &context.home.path().display().to_string());
    about(&status);
    if let Some(url) = &serving.url {
        line("web page", &page(&serving.handle, url, terminal).await?);
    }
    line("terminal", "petasos chat");
    if terminal {
        say!("{}", styled(DIM, "Ctrl-C stops. Running turns may finish first."));
    }
    Ok(())
}

fn about(status: &Status) {
    let model = match status.model.demo {
        true => "demo model (scripted, offline; set a real one under `model:` in config.yaml)".to_owned(),
        false => format!("{} at {}", status.model.name, status.model.provider),
    };
    line("model", &model);
    if let Some(drain) = &status.lifecycle.drain {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        let asked = asked_for(drain.principal.as_deref(), at, drain.reason.as_deref());
        line("drain", &styled(ODD, &format!("no new turns start, {asked} (petasos resume ends it)")));
    }
    for link in &status.links {
        let told = match link.link.state {
            State::Connecting { .. } => "connecting".to_owned(),
            State::Up { .. } | State::Waiting { .. } | State::Fatal { .. } | State::Paused => {
                state_of(&link.link)
            }
        };
        line(link.name, &told);
    }
}

/// A link that lets somebody in is for the eyes of a person, not for a log.
async fn page(handle: &Handle, url: &str, terminal: bool) -> Result<String, Failure> {
    if !terminal {
        return Ok(format!("{url} (petasos open prints a link that lets you in)"));
    }
    let link = login_url(handle, Some(url)).await?.unwrap_or_default();
    Ok(format!("{link} {}", styled(DIM, "(works once; `petasos open` makes another)")))
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
    say!("  {} {text}", styled(DIM, &format!("{name:<9}")));
}
