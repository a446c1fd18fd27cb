//! The fakes for trials by hand: `petasos-fakes telegram --port 9001`, `petasos-fakes model --port 9000`.
//!
//! Telegram: a line typed is a message in chat 1, `:press MESSAGE DATA` presses a button; what the bot
//! does is printed. Model: a line typed is the next answer; requests are printed.

use std::io::{self, BufRead};
use std::process::ExitCode;

use petasos_fakes::model::Answer;
use petasos_fakes::telegram::Change;
use petasos_fakes::{Model, Telegram};

const USAGE: &str = "usage: petasos-fakes telegram|model [--port PORT]";
const CHAT: i64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let port = |text: &str| text.parse::<u16>().ok();
    let done = match words.as_slice() {
        ["telegram"] => telegram(9001),
        ["model"] => model(9000),
        [which, "--port", number] => match (*which, port(number)) {
            ("telegram", Some(port)) => telegram(port),
            ("model", Some(port)) => model(port),
            _unknown => return usage(),
        },
        _unknown => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("petasos-fakes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn telegram(port: u16) -> io::Result<()> {
    let fake = Telegram::start_on(port)?;
    println!("Telegram at {}/bot<token>/<method>; type to chat {CHAT}", fake.url());
    fake.observe(|change| println!("{}", shown(change)));
    each_line(|line| {
        match line.strip_prefix(":press ").and_then(pressed) {
            Some((message, data)) => fake.push_callback(CHAT, CHAT, message, data),
            None => fake.push_text(CHAT, CHAT, line),
        };
    })
}

fn model(port: u16) -> io::Result<()> {
    let fake = Model::start_on(port)?;
    println!("Model at {}/v1 (OpenAI, Anthropic) and {}/api/chat (Ollama)", fake.url(), fake.url());
    fake.respond(|request| {
        let (api, model) = (request.api, &request.model);
        println!("{api:?} {model}, {} messages: {}", request.messages().len(), request.last_user);
        Answer::text(format!("echo: {}", request.last_user)).chunks(4)
    });
    each_line(|line| fake.script(Answer::text(line).chunks(4)))
}

/// Without a terminal the fake goes on serving until it is killed.
fn each_line(mut act: impl FnMut(&str)) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        if !line.is_empty() {
            act(&line);
        }
    }
    loop {
        std::thread::park();
    }
}

fn pressed(rest: &str) -> Option<(i64, &str)> {
    let (message, data) = rest.split_once(' ')?;
    Some((message.parse().ok()?, data))
}

fn shown(change: &Change) -> String {
    match change {
        Change::Sent(message) => format!("[{} #{}] {}", message.chat, message.id, message.text),
        Change::Edited(message) => format!("[{} #{} edited] {}", message.chat, message.id, message.text),
        Change::Deleted { chat, id } => format!("[{chat} #{id} deleted]"),
        Change::Drafted { chat, draft } => format!("[{chat} draft] {}", draft.text),
        Change::Typing { chat } => format!("[{chat} typing]"),
        Change::Reacted { chat, id, emoji } => format!("[{chat} #{id} {}]", emoji.concat()),
    }
}
