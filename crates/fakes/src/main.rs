//! The fakes for manual trials: `petasos-fakes telegram --port 9001`, `petasos-fakes model --port 9000`.
//! `petasos-fakes --help` lists the commands.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use petasos_fakes::model::Answer;
use petasos_fakes::telegram::{Fault, ServiceError, VisibleChange};
use petasos_fakes::{Model, Telegram};

const HELP: &str = "\
Fake services on 127.0.0.1, for manual trials.

usage: petasos-fakes telegram|model [--port PORT]

telegram (port 9001): the Bot API. In config.yaml:
    platforms: {telegram: {token: '123:abc', extra: {base_url: 'http://127.0.0.1:9001/bot'}}}
  It prints what the bot does. A line you type is a message of user 1 in chat 1, except:
    @CHAT text                   a message in another chat, by the user with the same number
    @CHAT:USER text              a message by another user; a negative CHAT is a group
    :press MESSAGE DATA          press a button of a message in chat 1
    :fail METHOD CODE [SECONDS]  refuse the next call; SECONDS is its retry_after
    :reset METHOD                process the next call, but lose its response
    :delay METHOD SECONDS        delay the next call
    :down  :up                   stop the service, and start it again with the same state
    :clear                       remove all faults
    :help                        print this text
  METHOD is sendMessage, editMessageText, getUpdates, …, or * for any.

model (port 9000): chat completions as OpenAI, Anthropic and Ollama speak them. In config.yaml:
    model: {provider: custom, default: fake, base_url: 'http://127.0.0.1:9000/v1'}
  It prints each request and echoes it. A line you type is the next answer instead, except :down, :up and
  :help as above, and:
    :tool NAME {ARGUMENTS}       the next answer calls this tool

It serves until it is killed, even after the end of its input.";

const CHAT: i64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let port = |text: &str| text.parse::<u16>().ok();
    let result = match words.as_slice() {
        ["--help" | "-h" | "help"] => {
            print_line(HELP);
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
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("petasos-fakes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: petasos-fakes telegram|model [--port PORT]\nrun petasos-fakes --help for details");
    ExitCode::from(2)
}

fn telegram(port: u16) -> io::Result<()> {
    let fake = Telegram::start_on(port)?;
    print_line(&format!(
        "Telegram at {}/bot<token>/<method>; type a message for chat {CHAT}, or :help",
        fake.url()
    ));
    fake.observe(|change| print_line(&shown(change)));
    each_line(|line| match parse_input(line) {
        Ok(InputCommand::Message { chat, user, text }) => {
            fake.push_text(chat, user, text);
        }
        Ok(InputCommand::Press { message, data }) => {
            fake.push_callback(CHAT, CHAT, message, data);
        }
        Ok(InputCommand::Fault { method, fault }) => fake.on(method).does(fault),
        Ok(InputCommand::Clear) => fake.clear_faults(),
        Ok(InputCommand::Down) => {
            fake.down();
        }
        Ok(InputCommand::Up) => report(fake.up()),
        Ok(InputCommand::Help) => print_line(HELP),
        Err(error) => print_line(&format!("? {error} (:help)")),
    })
}

fn model(port: u16) -> io::Result<()> {
    let fake = Model::start_on(port)?;
    print_line(&format!(
        "Model at {}/v1 (OpenAI, Anthropic) and {}/api/chat (Ollama)",
        fake.url(),
        fake.url()
    ));
    fake.respond(|request| {
        let api = request.api;
        let model = &request.model;
        print_line(&format!("{api:?} {model}, {} messages: {}", request.messages().len(), request.last_user));
        Answer::text(format!("echo: {}", request.last_user)).chunks(4)
    });
    each_line(|line| match line {
        ":down" => {
            fake.down();
        }
        ":up" => report(fake.up()),
        ":help" => print_line(HELP),
        text => match text.strip_prefix(":tool ").map(parse_tool_call) {
            Some(Some(answer)) => fake.script(answer),
            Some(None) => print_line("? expected :tool NAME {ARGUMENTS} (:help)"),
            None => fake.script(Answer::text(text).chunks(4)),
        },
    })
}

fn parse_tool_call(rest: &str) -> Option<Answer> {
    let (name, arguments) = rest.split_once(' ')?;
    serde_json::from_str(arguments).ok().map(|arguments| Answer::tool(name, arguments))
}

#[derive(Debug, PartialEq)]
enum InputCommand<'a> {
    Message { chat: i64, user: i64, text: &'a str },
    Press { message: i64, data: &'a str },
    Fault { method: &'a str, fault: Fault },
    Clear,
    Down,
    Up,
    Help,
}

fn parse_input(line: &str) -> Result<InputCommand<'_>, &'static str> {
    if let Some(rest) = line.strip_prefix('@') {
        return parse_message(rest).ok_or("expected @CHAT text or @CHAT:USER text, both numbers");
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [":press", ..] => parse_press(line).ok_or("expected :press MESSAGE DATA"),
        [":fail", method, rest @ ..] => {
            let fault = parse_error(rest).ok_or("expected :fail METHOD CODE [SECONDS]")?;
            Ok(InputCommand::Fault { method, fault })
        }
        [":reset", method] => Ok(InputCommand::Fault { method, fault: Fault::ResetAfter }),
        [":delay", method, seconds] => {
            let seconds = seconds.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
            let fault = Fault::Delay(seconds.ok_or("expected :delay METHOD SECONDS")?);
            Ok(InputCommand::Fault { method, fault })
        }
        [":clear"] => Ok(InputCommand::Clear),
        [":down"] => Ok(InputCommand::Down),
        [":up"] => Ok(InputCommand::Up),
        [":help"] => Ok(InputCommand::Help),
        [word, ..] if word.starts_with(':') => Err("unknown command"),
        _text => Ok(InputCommand::Message { chat: CHAT, user: CHAT, text: line }),
    }
}

fn parse_message(rest: &str) -> Option<InputCommand<'_>> {
    let (address, text) = rest.split_once(' ')?;
    let (chat, user) = address.split_once(':').unwrap_or((address, address.trim_start_matches('-')));
    Some(InputCommand::Message { chat: chat.parse().ok()?, user: user.parse().ok()?, text })
}

fn parse_press(line: &str) -> Option<InputCommand<'_>> {
    let (message, data) = line.strip_prefix(":press ")?.split_once(' ')?;
    Some(InputCommand::Press { message: message.parse().ok()?, data })
}

fn parse_error(words: &[&str]) -> Option<Fault> {
    let code = words.first()?.parse().ok()?;
    let retry_after = match words.get(1) {
        Some(seconds) => Some(seconds.parse().ok()?),
        None => None,
    };
    Some(match (code, retry_after) {
        (429, Some(seconds)) => Fault::too_many(seconds),
        (403, None) => Fault::blocked(),
        (code, retry_after) => {
            Fault::Refuse(ServiceError { code, description: "made to fail".into(), retry_after })
        }
    })
}

fn report(result: io::Result<()>) {
    if let Err(error) = result {
        print_line(&format!("? {error}"));
    }
}

fn print_line(text: &str) {
    let mut out = io::stdout().lock();
    let _output_closed = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Never returns without an error: the fake keeps serving after the end of the input.
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

fn shown(change: &VisibleChange) -> String {
    match change {
        VisibleChange::Sent(message) => format!("[{} #{}] {}", message.chat, message.id, message.text),
        VisibleChange::Edited(message) => {
            format!("[{} #{} edited] {}", message.chat, message.id, message.text)
        }
        VisibleChange::Deleted { chat, id } => format!("[{chat} #{id} deleted]"),
        VisibleChange::Drafted { chat, draft } => format!("[{chat} draft] {}", draft.text),
        VisibleChange::Typing { chat } => format!("[{chat} typing]"),
        VisibleChange::Reacted { chat, id, emoji } => format!("[{chat} #{id} {}]", emoji.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_fault(line: &str, want: Fault) {
        assert_eq!(
            parse_input(line),
            Ok(InputCommand::Fault { method: "sendMessage", fault: want }),
            "{line}"
        );
    }

    #[test]
    fn parses_messages_and_commands() {
        assert_eq!(parse_input("hello"), Ok(InputCommand::Message { chat: 1, user: 1, text: "hello" }));
        assert_eq!(parse_input("@7 hi you"), Ok(InputCommand::Message { chat: 7, user: 7, text: "hi you" }));
        assert_eq!(parse_input("@-100:7 hi"), Ok(InputCommand::Message { chat: -100, user: 7, text: "hi" }));
        assert_eq!(parse_input(":press 4 yes sir"), Ok(InputCommand::Press { message: 4, data: "yes sir" }));
        assert!(
            parse_input("@seven hi").is_err()
                && parse_input(":nonsense").is_err()
                && parse_input(":fail x").is_err()
        );
    }

    #[test]
    fn tool_call_needs_name_and_arguments() {
        assert!(parse_tool_call(r#"clock {"zone": "UTC"}"#).is_some());
        assert!(parse_tool_call("clock").is_none() && parse_tool_call("clock now").is_none());
    }

    #[test]
    fn parses_faults_with_their_numbers() {
        check_fault(":fail sendMessage 429 5", Fault::too_many(5));
        check_fault(":fail sendMessage 403", Fault::blocked());
        check_fault(":reset sendMessage", Fault::ResetAfter);
        check_fault(":delay sendMessage 1.5", Fault::Delay(Duration::from_millis(1500)));
    }
}
