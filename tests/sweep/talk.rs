//! A conversation on Telegram by long poll.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming, Side};

use crate::Scenario;
use crate::life::{Life, Outcome, is_marked, short, unmarked, wait};
use crate::support::{Bench, SOON, said};

pub const CHAT: i64 = 101;
pub const QUESTION: &str = "hello from 101";
/// A message cut into three.
const PARTS: usize = 3;

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Streamed,
    Split,
}

pub const FORMS: [Form; 3] = [Form::Plain, Form::Streamed, Form::Split];

/// What the platform does to the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    TooMany,
    Refused,
    Uneditable,
}

impl Hindrance {
    pub fn form(self) -> Form {
        match self {
            Self::TooMany | Self::Refused => Form::Plain,
            Self::Uneditable => Form::Streamed,
        }
    }
}

pub fn answer(form: Form) -> String {
    match form {
        Form::Plain | Form::Streamed => format!("echo: {QUESTION}"),
        Form::Split => format!("echo: {QUESTION} {}", "words and words ".repeat(600)),
    }
}

/// As the configuration has it.
pub fn streaming(form: Form) -> &'static str {
    match form {
        Form::Plain | Form::Split => "",
        Form::Streamed => "streaming:\n  enabled: true\n  transport: edit\n",
    }
}

pub fn bench(form: Form) -> Bench {
    let bench = Bench::with(streaming(form));
    answers(&bench, form, answer(form));
    bench
}

/// The model answers the question with this, and echoes whatever else is said.
pub fn answers(bench: &Bench, form: Form, answer: String) {
    bench.model.respond(move |request| {
        let said = said(&request.last_user);
        if !said.contains(QUESTION) {
            return Answer::text(format!("echo: {said}"));
        }
        let text = answer.clone();
        match form {
            Form::Plain | Form::Split => Answer::text(text),
            Form::Streamed => Answer::text(text).chunks(8).every(Duration::from_millis(200)),
        }
    });
}

fn push(life: &Life) {
    life.bench.telegram.push_text(CHAT, CHAT, QUESTION);
}

pub fn ask(life: &mut Life, scenario: Scenario) -> Outcome {
    let telegram = &life.bench.telegram;
    if let Scenario::Hindered(hindrance) = scenario {
        match hindrance {
            Hindrance::TooMany => telegram.on("sendMessage").times(1).does(Fault::too_many(1)),
            Hindrance::Refused => {
                telegram.on("sendMessage").times(1).does(Fault::status(400, "Bad Request: message is odd"));
            }
            Hindrance::Uneditable => {
                let refusal = Fault::status(400, "Bad Request: message can't be edited");
                telegram.on("editMessageText").does(refusal);
            }
        }
    }
    life.launch();
    push(life);
    Ok(())
}

pub fn command(life: &mut Life) -> Outcome {
    life.launch();
    life.bench.telegram.push_text(CHAT, CHAT, "/help");
    Ok(())
}

pub fn photo(life: &mut Life) -> Outcome {
    life.bench.telegram.add_file("cat", b"\x89PNG\r\n\x1a\n, and what makes a picture".to_vec());
    life.launch();
    life.bench.telegram.push(Incoming::photo(CHAT, CHAT, "cat", 40, QUESTION));
    Ok(())
}

pub fn retry(life: &mut Life) -> Outcome {
    life.launch();
    push(life);
    life.sees(CHAT, &answer(Form::Plain))?;
    life.bench.settle();
    life.bench.telegram.push_text(CHAT, CHAT, "/retry");
    Ok(())
}

/// The process is killed while the model is being asked; the gate still holds the answer back.
fn killed_while_asking(life: &mut Life) -> Result<Gate, String> {
    let gate = life.bench.model.gate(Point::Before);
    life.bench.start();
    push(life);
    if !gate.wait(SOON) {
        return Err("the model was never asked".into());
    }
    life.bench.kill();
    Ok(gate)
}

pub fn resume(life: &mut Life) -> Outcome {
    let gate = killed_while_asking(life)?;
    gate.open();
    life.launch();
    Ok(())
}

/// Every start after a crash holds the turns that were executing, for a second each.
pub fn holding_suspects() -> Bench {
    let bench = Bench::with("gateway:\n  restart_loop_guard: {max_restarts: 1, stable_seconds: 1}\n");
    answers(&bench, Form::Plain, answer(Form::Plain));
    bench
}

pub fn suspect(life: &mut Life) -> Outcome {
    let gate = killed_while_asking(life)?;
    life.launch();
    // The turn is still executing when it is cleared.
    if !life.bench.dies(SOON) {
        return Err("it never died".into());
    }
    gate.open();
    Ok(())
}

pub fn stop(life: &mut Life) -> Outcome {
    let gate = life.bench.model.gate(Point::Before);
    life.launch();
    push(life);
    if !gate.wait(SOON) {
        return Err("the model was never asked".into());
    }
    life.bench.gateway.as_ref().expect("it runs").signal_if_alive("TERM");
    // The turn is cut off by the stop; the answer belongs to the next process.
    if !life.bench.dies(SOON) {
        return Err("it never stopped".into());
    }
    gate.open();
    Ok(())
}

/// Its platform answers when the ways in are closed already.
pub fn late_send(life: &mut Life) -> Outcome {
    let gate = life.bench.telegram.gate("sendMessage", Side::After);
    life.launch();
    push(life);
    if !gate.wait(SOON) {
        return Err("nothing was sent".into());
    }
    life.bench.gateway.as_ref().expect("it runs").signal_if_alive("TERM");
    let socket = life.bench.home.path().join("petasos.sock");
    wait("the ways in close", || UnixStream::connect(&socket).is_err())?;
    gate.open();
    Ok(())
}

/// Whether the whole answer stands in these texts.
fn is_whole(form: Form, texts: &[String], answer: &str) -> bool {
    match form {
        Form::Split => {
            let part = |part: usize| texts.iter().any(|text| text.contains(&format!("({part}/{PARTS})")));
            (1..=PARTS).all(part)
        }
        Form::Plain | Form::Streamed => texts.iter().any(|text| text.contains(answer) && !text.contains('▉')),
    }
}

pub fn check(life: &mut Life, scenario: Scenario) -> Outcome {
    let form = match scenario {
        Scenario::Ask(form) => form,
        Scenario::Hindered(hindrance) => hindrance.form(),
        _other => Form::Plain,
    };
    let answer = match scenario {
        Scenario::Command => "/new".to_owned(),
        _other => answer(form).chars().take(60).collect(),
    };
    life.launch();
    let refused = scenario == Scenario::Hindered(Hindrance::Refused);
    let dead =
        |life: &Life| life.bench.status().pointer("/outbox/dead").and_then(|it| it.as_u64()) == Some(1);
    let mut listed = false;
    let answered = wait("answered", || {
        // A message that was refused for good is listed instead.
        listed = refused && dead(life);
        listed || is_whole(form, &life.texts(CHAT), &answer)
    });
    answered.map_err(|error| format!("{error}: {:?}", short(&life.texts(CHAT))))?;
    if listed {
        return Ok(());
    }
    life.bench.settle();
    let notices = ["Gateway shutting down", "Your message is kept"];
    let is_notice = |text: &String| notices.iter().any(|notice| text.contains(notice));
    let texts: Vec<String> = life.texts(CHAT).into_iter().filter(|text| !is_notice(text)).collect();
    no_unmarked_copy(form, &texts)?;
    life.asked_at_most(match scenario {
        Scenario::Command => 0,
        Scenario::Suspect => 3,
        _other => 2,
    })
}

pub fn no_unmarked_copy(form: Form, texts: &[String]) -> Outcome {
    let mut unmarked: Vec<&String> = texts.iter().filter(|text| !is_marked(text)).collect();
    let count = unmarked.len();
    unmarked.sort();
    unmarked.dedup();
    // A preview beside a marked answer is what the mark is for.
    let copies = unmarked.len() != count || (form != Form::Split && count > 1 && count == texts.len());
    if copies { Err(format!("an unmarked copy: {:?}", short(texts))) } else { Ok(()) }
}

/// The exchange is taken back once, and the message answered again.
pub fn check_retry(life: &mut Life) -> Outcome {
    life.launch();
    let answer = answer(Form::Plain);
    wait("answered again", || life.texts(CHAT).iter().filter(|text| text.contains(&answer)).count() > 1)?;
    life.bench.settle();
    match unmarked(&life.texts(CHAT), &answer) {
        1 | 2 => life.asked_at_most(3),
        _other => Err(format!("{:?}", short(&life.texts(CHAT)))),
    }
}
