//! `petasos channels`: the chats known by name.

use std::process::ExitCode;

use petasos_core::directory::Channel;
use petasos_gateway::home::directory;

use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, DIM, outln, styled};

pub fn channels(context: &Context) -> Result<ExitCode, Failure> {
    let known = directory::read(context.home.path());
    if context.json {
        print::json(&known)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> =
        known.platforms.iter().flat_map(|(platform, of)| of.iter().map(|it| row(platform, it))).collect();
    if rows.is_empty() {
        outln!("No chats known yet; a running gateway lists them once its platforms are connected");
        return Ok(ExitCode::SUCCESS);
    }
    print::table(&["TARGET", "NAME", "TYPE"], &rows);
    if let Some(at) = known.updated_at {
        outln!("{}", styled(DIM, &format!("As of {at}; channel_aliases.json can name more")));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(platform: &str, channel: &Channel) -> Vec<String> {
    let thread = channel.thread_id.as_ref().map(|thread| format!(":{thread}")).unwrap_or_default();
    vec![format!("{platform}:{}{thread}", channel.id), channel.label(), channel.kind.clone()]
}
