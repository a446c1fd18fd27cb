//! The fakes for trials by hand: `petasos-fakes telegram --port 9001`, `petasos-fakes model --port 9000`.
//! `petasos-fakes --help` says what can be typed.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use petasos_fakes::model::Answer;
use petasos_fakes::telegram::{Change, Fault};
use petasos_fakes::{Model, Telegram};

const HELP: &str = "\
Fake services on 127.0.0.1, for trials by hand.

usage: petasos-fakes telegram|model [--port PORT]

telegram (port 9001): the Bot API. In config.yaml:
    platforms: {telegram: {token: '123:abc', extra: {base_url: 'http://127.0.0.1:9001/bot'}}}
  What the bot does is printed. What you type is said by user 1 in chat 1, except:
    @CHAT text                   said in another chat, by the user of the same number
    @CHAT:USER text              said by another user; a negative CHAT is a group
    :press MESSAGE DATA          presses a button below a message in chat 1
    :fail METHOD CODE [SECONDS]  the next call is refused; SECONDS is its retry_after
    :reset METHOD                the next call is carried out, and its answer is lost
    :delay METHOD SECONDS        the next call is answered late
    :down  :up                   the service is gone, and back again with what it knew
    :clear                       forgets every fault that has not struck yet
    :help                        this text
  METHOD is sendMessage, editMessageText, getUpdates, …, or * for any.

model (port 9000): chat completions as OpenAI, Anthropic and Ollama speak them. In config.yaml:
    model: {provider: custom, default: fake, base_url: 'http://127.0.0.1:9000/v1'}
  Requests are printed and echoed. What you type is the next answer instead; :down, :up and :help
  as above.
    :tool NAME {ARGUMENTS}       the next answer calls this tool

It serves until it is killed, also when there is nothing to read.";

const CHAT: i64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let port = |text: &str| text.parse::<u16>().ok();
    let done = match words.as_slice() {
        ["--help" | "-h" | "help"] => {
            tell(HELP);
            return ExitCode::SUCCESS;
        }
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
    eprintln!("usage: petasos-fakes telegram|model [--port PORT]\n--help says more");
    ExitCode::from(2)
}

fn telegram(port: u16) -> io::Result<()> {
    let fake = Telegram::start_on(port)?;
    tell(&format!(
        "Telegram at {}/bot<token>/<method>; what you type is said in chat {CHAT}, :help says more",
        fake.url()
    ));
    fake.observe(|change| tell(&shown(change)));
    each_line(|line| match typed(line) {
        Ok(Typed::Said { chat, user, text }) => {
            fake.push_text(chat, user, text);
        }
        Ok(Typed::Pressed { message, data }) => {
            fake.push_callback(CHAT, CHAT, message, data);
        }
        Ok(Typed::Fault { method, fault }) => fake.on(method).does(fault),
        Ok(Typed::Clear) => fake.clear_faults(),
        Ok(Typed::Down) => {
            fake.down();
        }
        Ok(Typed::Up) => up(fake.up()),
        Ok(Typed::Help) => tell(HELP),
        Err(why) => tell(&format!("? {why} (:help)")),
    })
}

fn model(port: u16) -> io::Result<()> {
    let fake = Model::start_on(port)?;
    tell(&format!("Model at {}/v1 (OpenAI, Anthropic) and {}/api/chat (Ollama)", fake.url(), fake.url()));
    fake.respond(|request| {
        let (api, model) = (request.api, &request.model);
        tell(&format!("{api:?} {model}, {} messages: {}", request.messages().len(), request.last_user));
        Answer::text(format!("echo: {}", request.last_user)).chunks(4)
    });
    each_line(|line| match line {
        ":down" => fake.down(),
        ":up" => up(fake.up()),
        ":help" => tell(HELP),
        text => match text.strip_prefix(":tool ").map(called) {
            Some(Some(answer)) => fake.script(answer),
            Some(None) => tell("? expected :tool NAME {ARGUMENTS} (:help)"),
            None => fake.script(Answer::text(text).chunks(4)),
        },
    })
}

/// A tool's name and its arguments.
fn called(rest: &str) -> Option<Answer> {
    let (name, arguments) = rest.split_once(' ')?;
    serde_json::from_str(arguments).ok().map(|arguments| Answer::tool(name, arguments))
}

/// What a line typed to the fake Telegram means.
#[derive(Debug, PartialEq)]
enum Typed<'a> {
    Said { chat: i64, user: i64, text: &'a str },
    Pressed { message: i64, data: &'a str },
    Fault { method: &'a str, fault: Fault },
    Clear,
    Down,
    Up,
    Help,
}

fn typed(line: &str) -> Result<Typed<'_>, &'static str> {
    if let Some(rest) = line.strip_prefix('@') {
        return said(rest).ok_or("expected @CHAT text or @CHAT:USER text, both numbers");
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [":press", ..] => pressed(line).ok_or("expected :press MESSAGE DATA"),
        [":fail", method, rest @ ..] => {
            let fault = refusal(rest).ok_or("expected :fail METHOD CODE [SECONDS]")?;
            Ok(Typed::Fault { method, fault })
        }
        [":reset", method] => Ok(Typed::Fault { method, fault: Fault::ResetAfter }),
        [":delay", method, seconds] => {
            let seconds = seconds.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
            let fault = Fault::Delay(seconds.ok_or("expected :delay METHOD SECONDS")?);
            Ok(Typed::Fault { method, fault })
        }
        [":clear"] => Ok(Typed::Clear),
        [":down"] => Ok(Typed::Down),
        [":up"] => Ok(Typed::Up),
        [":help"] => Ok(Typed::Help),
        [word, ..] if word.starts_with(':') => Err("unknown command"),
        _text => Ok(Typed::Said { chat: CHAT, user: CHAT, text: line }),
    }
}

fn said(rest: &str) -> Option<Typed<'_>> {
    let (who, text) = rest.split_once(' ')?;
    let (chat, user) = who.split_once(':').unwrap_or((who, who.trim_start_matches('-')));
    Some(Typed::Said { chat: chat.parse().ok()?, user: user.parse().ok()?, text })
}

fn pressed(line: &str) -> Option<Typed<'_>> {
    let (message, data) = line.strip_prefix(":press ")?.split_once(' ')?;
    Some(Typed::Pressed { message: message.parse().ok()?, data })
}

fn refusal(words: &[&str]) -> Option<Fault> {
    let code = words.first()?.parse().ok()?;
    let retry_after = match words.get(1) {
        Some(seconds) => Some(seconds.parse().ok()?),
        None => None,
    };
    Some(match (code, retry_after) {
        (429, Some(seconds)) => Fault::too_many(seconds),
        (403, None) => Fault::blocked(),
        (code, retry_after) => Fault::Status { code, description: "made to fail".into(), retry_after },
    })
}

fn up(done: io::Result<()>) {
    if let Err(error) = done {
        tell(&format!("? {error}"));
    }
}

/// Whoever reads along may have left.
fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let _reader_gone = writeln!(out, "{text}").and_then(|()| out.flush());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fault(line: &str, want: Fault) {
        assert_eq!(typed(line), Ok(Typed::Fault { method: "sendMessage", fault: want }), "{line}");
    }

    #[test]
    fn lines_are_messages_unless_they_begin_with_a_mark() {
        assert_eq!(typed("hello"), Ok(Typed::Said { chat: 1, user: 1, text: "hello" }));
        assert_eq!(typed("@7 hi you"), Ok(Typed::Said { chat: 7, user: 7, text: "hi you" }));
        assert_eq!(typed("@-100:7 hi"), Ok(Typed::Said { chat: -100, user: 7, text: "hi" }));
        assert_eq!(typed(":press 4 yes sir"), Ok(Typed::Pressed { message: 4, data: "yes sir" }));
        assert!(typed("@seven hi").is_err() && typed(":nonsense").is_err() && typed(":fail x").is_err());
    }

    #[test]
    fn a_call_needs_a_name_and_arguments() {
        assert!(called(r#"clock {"zone": "UTC"}"#).is_some());
        assert!(called("clock").is_none() && called("clock now").is_none());
    }

    #[test]
    fn faults_are_read_with_their_numbers() {
        fault(":fail sendMessage 429 5", Fault::too_many(5));
        fault(":fail sendMessage 403", Fault::blocked());
        fault(":reset sendMessage", Fault::ResetAfter);
        fault(":delay sendMessage 1.5", Fault::Delay(Duration::from_millis(1500)));
    }
}
