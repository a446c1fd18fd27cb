//! `petasos chat`: the agent in this terminal, over the control socket.
//!
//! If no gateway runs, one is started inside this process for as long as the chat lasts. Nothing is kept
//! here: what was said is in the database, and the next chat shows it again.

mod ask;
mod editor;
mod feed;
mod markdown;
mod paper;
mod screen;
mod talk;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use serde_json::json;

use super::Context;
use crate::arguments::Chat;
use crate::client::Client;
use crate::failure::Failure;
use crate::logs::{self, Loudness};
use crate::print::{self, DIM, say, styled, warn_of};
use ask::{Asker, Outcome};
use feed::Feed;
use markdown::Renderer;
use paper::Paper;
use screen::Screen;

/// A gateway in this process.
pub trait Hosted {
    /// Stops it. Nobody is left to wait for an answer; the next start resumes what was interrupted.
    fn end(self) -> impl Future<Output = ()>;
}

/// `host` starts a gateway in this process, for a home that has none.
pub async fn chat<H: Hosted>(
    context: &Context,
    wanted: Chat,
    host: impl AsyncFnOnce(&Context) -> Result<H, Failure>,
) -> Result<ExitCode, Failure> {
    if context.loudness != Loudness::Normal {
        logs::start(context.loudness);
    }
    let question = question(&wanted)?;
    let (client, own) = connect(context, host).await?;
    let feed = Feed::follow(context.home.clone(), client.clone(), wanted.session.clone());
    let mut asker = Asker::new(client.clone(), wanted.session.clone(), feed);
    let done = match question {
        Some(text) => once(context, &mut asker, wanted.new, text).await,
        None => talk::talk(context, &client, &mut asker, wanted.new).await,
    };
    drop((asker, client));
    if let Some(hosted) = own {
        hosted.end().await;
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

async fn connect<H>(
    context: &Context,
    host: impl AsyncFnOnce(&Context) -> Result<H, Failure>,
) -> Result<(Client, Option<H>), Failure> {
    if let Some(client) = Client::connect(&context.home)? {
        return Ok((client, None));
    }
    let hosted = host(context).await?;
    let note = "no gateway is running, so this chat runs its own until it ends (petasos run keeps one)";
    warn_of!("{}", styled(DIM, note));
    Ok((Client::require(&context.home)?, Some(hosted)))
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
                print_answer(&told);
            }
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Answered if notices.is_empty() => Err(Failure::new("there was no answer")),
        Outcome::Answered => Err(Failure::new(notices)),
        Outcome::Stopped => {
            if !context.json {
                print_answer(&answer);
            }
            Err(Failure::new("the answer was stopped before its end"))
        }
        Outcome::Interrupted => Err(Failure::new("interrupted")),
    }
}

/// Drawn for a person, as it is for a program.
fn print_answer(text: &str) {
    if !std::io::stdout().is_terminal() {
        return say!("{text}");
    }
    let mut paper = Paper::stdout(editor::columns());
    let drawn = Renderer::all(paper.width(), text);
    paper.write(&drawn);
}
