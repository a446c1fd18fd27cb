//! `petasos chat`: the agent in this terminal, over the control socket.
//!
//! If no gateway runs, one is started inside this process for as long as the chat lasts. Nothing is kept
//! here: what was said is in the database, and the next chat shows it again.

mod ask;
mod editor;
mod feed;
mod markdown;
mod screen;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Context, warn};
use crate::arguments::Chat;
use crate::client::Client;
use crate::config;
use crate::failure::Failure;
use crate::logs::{self, Loudness};
use crate::print::{self, DIM, styled};
use crate::serve::{self, Serving};
use crate::wire::wire;
use ask::{Asker, Outcome};
use editor::{Editor, Input};
use feed::Feed;
use screen::Screen;

pub(crate) async fn chat(context: &Context, wanted: Chat) -> Result<ExitCode, Failure> {
    if context.loudness != Loudness::Normal {
        logs::start(context.loudness);
    }
    let question = question(&wanted)?;
    let (client, own) = connect(context).await?;
    let feed = Feed::follow(context.home.clone(), client.clone(), wanted.session.clone());
    let mut asker = Asker::new(client.clone(), wanted.session.clone(), feed);
    let done = match question {
        Some(text) => once(context, &mut asker, wanted.new, text).await,
        None => converse(context, &client, &mut asker, wanted.new).await,
    };
    drop((asker, client));
    if let Some(serving) = own {
        serving.handle.shutdown();
        serving.wait().await;
    }
    done
}

/// The message to ask and leave. `None`: a conversation.
fn question(wanted: &Chat) -> Result<Option<String>, Failure> {
    if !wanted.message.is_empty() {
        return Ok(Some(wanted.message.join(" ")));
    }
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
    if text.trim().is_empty() {
        return Err(Failure::new("there is nothing to ask").next("petasos chat \"your question\""));
    }
    Ok(Some(text))
}

async fn connect(context: &Context) -> Result<(Client, Option<Serving>), Failure> {
    if let Some(client) = Client::connect(&context.home)? {
        return Ok((client, None));
    }
    let lock = serve::take(&context.home)?;
    let mut resolved = config::load(&context.home);
    let mut wired = wire(&context.home, &mut resolved).map_err(|problems| Failure::of_problems(&problems))?;
    warn(&resolved.problems);
    // The page belongs to a gateway that stays.
    wired.listen = None;
    let serving = serve::start(&context.home, wired, lock).await?;
    let note = "no gateway is running, so this chat runs its own until it ends (petasos run keeps one)";
    crate::print::warn_of!("{}", styled(DIM, note));
    Ok((Client::require(&context.home)?, Some(serving)))
}

async fn once(context: &Context, asker: &mut Asker, fresh: bool, text: String) -> Result<ExitCode, Failure> {
    let mut screen = Screen::collecting();
    asker.catch_up(&mut Screen::collecting()).await;
    if fresh {
        asker.ask("/new", &mut Screen::collecting()).await?;
    }
    let outcome = asker.ask(&text, &mut screen).await?;
    let answer = screen.answers().join("\n\n");
    let notices = screen.notices().join("\n");
    let command = text.starts_with('/');
    match outcome {
        Outcome::Answered if !answer.is_empty() || command => {
            let told = if answer.is_empty() { notices } else { answer };
            if context.json {
                print::json(&json!({ "answer": told, "session": asker.session() }))?;
            } else {
                crate::print::say!("{told}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Answered if notices.is_empty() => Err(Failure::new("there was no answer")),
        Outcome::Answered => Err(Failure::new(notices)),
        Outcome::Interrupted => Err(Failure::new("interrupted")),
    }
}

async fn converse(
    context: &Context,
    client: &Client,
    asker: &mut Asker,
    fresh: bool,
) -> Result<ExitCode, Failure> {
    let status: Value = client.get("/api/status").await?;
    let model = status.pointer("/model/name").and_then(Value::as_str).unwrap_or("?");
    let hint = format!("{model} · /help lists commands · Ctrl-C interrupts · Ctrl-D leaves");
    crate::print::say!("{}", styled(DIM, &hint));
    let mut screen = Screen::showing();
    asker.catch_up(&mut screen).await;
    if fresh {
        asker.ask("/new", &mut screen).await?;
    }
    let mut editor = Editor::new(context.home.chat_history())?;
    let mut leaving = false;
    loop {
        asker.drain(&mut screen);
        match editor.read().await? {
            Input::Line(line) if line.trim().is_empty() => leaving = false,
            Input::Line(line) => {
                leaving = false;
                asker.ask(line.trim_end(), &mut screen).await?;
            }
            Input::Interrupted if leaving => break,
            Input::Interrupted => {
                leaving = true;
                crate::print::say!("{}", styled(DIM, "Ctrl-C again, or Ctrl-D, leaves"));
            }
            Input::End => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}
