//! `petasos chat`: the agent in this terminal, over the control socket.
//!
//! If no gateway runs, one is started in this process for the duration of the chat. The chat keeps no state:
//! messages are in the database, and the next chat shows them again.

mod editor;
mod exchange;
mod feed;
mod interactive;
mod markdown;
mod output;
mod view;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use serde_json::json;

use crate::arguments::ChatArguments;
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::logs::{self, Verbosity};
use crate::print::{self, DIM, errln, outln, styled};
use exchange::{Exchange, ExchangeOutcome};
use feed::Feed;
use markdown::Renderer;
use output::Output;
use view::View;

pub trait HostedGateway {
    /// Stops it without waiting for turns; the next start resumes them.
    fn end(self) -> impl Future<Output = ()>;
}

/// `host` starts a gateway in this process if the home has none.
pub async fn chat<H: HostedGateway>(
    context: &Context,
    arguments: ChatArguments,
    host: impl AsyncFnOnce(&Context) -> Result<H, Failure>,
) -> Result<ExitCode, Failure> {
    if context.verbosity != Verbosity::Normal {
        logs::start(context.verbosity);
    }
    let question = question(&arguments)?;
    let (client, hosted) = connect(context, host).await?;
    let feed = Feed::follow(context.home.clone(), client.clone(), arguments.session.clone());
    let mut exchange = Exchange::new(client.clone(), arguments.session.clone(), feed);
    let done = match question {
        Some(text) => one_shot(context, &mut exchange, arguments.new, text).await,
        None => interactive::run(context, &client, &mut exchange, arguments.new).await,
    };
    drop((exchange, client));
    if let Some(gateway) = hosted {
        gateway.end().await;
    }
    done
}

/// The message of a one-shot chat. `None` for an interactive one.
fn question(arguments: &ChatArguments) -> Result<Option<String>, Failure> {
    if !arguments.message.is_empty() {
        return Ok(Some(arguments.message.join(" ")));
    }
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
    if text.trim().is_empty() {
        return Err(Failure::new("the message is empty").next("petasos chat \"your question\""));
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
    let note = "No gateway is running, so this chat starts one that stops with the chat (petasos run keeps one running)";
    errln!("{}", styled(DIM, note));
    Ok((Client::require(&context.home)?, Some(hosted)))
}

async fn one_shot(
    context: &Context,
    exchange: &mut Exchange,
    fresh: bool,
    text: String,
) -> Result<ExitCode, Failure> {
    let mut view = View::buffered();
    exchange.load_history(&mut View::buffered()).await;
    if fresh {
        exchange.send_and_wait("/new", &mut View::buffered()).await?;
    }
    let outcome = exchange.send_and_wait(&text, &mut view).await?;
    let answer = view.answers().join("\n\n");
    let notices = view.notices().join("\n");
    let command = text.starts_with('/');
    match outcome {
        ExchangeOutcome::Answered if !answer.is_empty() || command => {
            let shown = if answer.is_empty() { notices } else { answer };
            if context.json {
                print::json(&json!({ "answer": shown, "session": exchange.session() }))?;
            } else {
                print_answer(&shown);
            }
            Ok(ExitCode::SUCCESS)
        }
        ExchangeOutcome::Answered if notices.is_empty() => {
            Err(Failure::new("the turn ended without an answer"))
        }
        ExchangeOutcome::Answered => Err(Failure::new(notices)),
        ExchangeOutcome::Stopped => {
            if !context.json {
                print_answer(&answer);
            }
            Err(Failure::new("the answer was stopped before it was complete"))
        }
        ExchangeOutcome::Interrupted => Err(Failure::new("interrupted")),
    }
}

/// Renders Markdown for a terminal; a pipe gets the text as it is.
fn print_answer(text: &str) {
    if !std::io::stdout().is_terminal() {
        return outln!("{text}");
    }
    let mut output = Output::stdout(editor::columns());
    let drawn = Renderer::render(output.width(), text);
    output.write(&drawn);
}
