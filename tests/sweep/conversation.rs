//! Exchanges on Telegram over long polling.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming, Side};

use crate::Scenario;
use crate::fixture::{SweepFixture, SweepResult, is_marked, short, unmarked, wait};
use crate::support::{ProgramFixture, SOON, user_text};

pub const CHAT: i64 = 101;
pub const QUESTION: &str = "hello from 101";
const PARTS: usize = 3;

/// How an answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    Plain,
    Streamed,
    Split,
}

pub const FORMS: [AnswerForm; 3] = [AnswerForm::Plain, AnswerForm::Streamed, AnswerForm::Split];

/// How the platform fails the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    TooMany,
    Refused,
    Uneditable,
}

impl SendFailure {
    pub fn form(self) -> AnswerForm {
        match self {
            Self::TooMany | Self::Refused => AnswerForm::Plain,
            Self::Uneditable => AnswerForm::Streamed,
        }
    }
}

pub fn answer(form: AnswerForm) -> String {
    match form {
        AnswerForm::Plain | AnswerForm::Streamed => format!("echo: {QUESTION}"),
        AnswerForm::Split => format!("echo: {QUESTION} {}", "words and words ".repeat(600)),
    }
}

pub fn streaming_config(form: AnswerForm) -> &'static str {
    match form {
        AnswerForm::Plain | AnswerForm::Split => "",
        AnswerForm::Streamed => "streaming:\n  enabled: true\n  transport: edit\n",
    }
}

pub fn program(form: AnswerForm) -> ProgramFixture {
    let program = ProgramFixture::with_config(streaming_config(form));
    set_answer(&program, form, answer(form));
    program
}

/// The model gives this answer to the question, and echoes other texts.
pub fn set_answer(program: &ProgramFixture, form: AnswerForm, answer: String) {
    program.model.respond(move |request| {
        let said = user_text(&request.last_user);
        if !said.contains(QUESTION) {
            return Answer::text(format!("echo: {said}"));
        }
        let text = answer.clone();
        match form {
            AnswerForm::Plain | AnswerForm::Split => Answer::text(text),
            AnswerForm::Streamed => Answer::text(text).chunks(8).every(Duration::from_millis(200)),
        }
    });
}

fn push(fixture: &SweepFixture) {
    fixture.program.telegram.push_text(CHAT, CHAT, QUESTION);
}

pub fn exchange(fixture: &mut SweepFixture, scenario: Scenario) -> SweepResult {
    let telegram = &fixture.program.telegram;
    if let Scenario::SendFails(failure) = scenario {
        match failure {
            SendFailure::TooMany => telegram.on("sendMessage").times(1).does(Fault::too_many(1)),
            SendFailure::Refused => {
                telegram.on("sendMessage").times(1).does(Fault::status(400, "Bad Request: message is odd"));
            }
            SendFailure::Uneditable => {
                let refusal = Fault::status(400, "Bad Request: message can't be edited");
                telegram.on("editMessageText").does(refusal);
            }
        }
    }
    fixture.launch();
    push(fixture);
    Ok(())
}

pub fn command(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.program.telegram.push_text(CHAT, CHAT, "/help");
    Ok(())
}

pub fn photo(fixture: &mut SweepFixture) -> SweepResult {
    fixture.program.telegram.add_file("cat", b"\x89PNG\r\n\x1a\n, and what makes a picture".to_vec());
    fixture.launch();
    fixture.program.telegram.push(Incoming::photo(CHAT, CHAT, "cat", 40, QUESTION));
    Ok(())
}

pub fn retry(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    push(fixture);
    fixture.wait_text(CHAT, &answer(AnswerForm::Plain))?;
    fixture.program.wait_idle();
    fixture.program.telegram.push_text(CHAT, CHAT, "/retry");
    Ok(())
}

/// Kills the process during the model call. The gate still holds the answer.
fn kill_during_model_call(fixture: &mut SweepFixture) -> Result<Gate, String> {
    let gate = fixture.program.model.gate(Point::Before);
    fixture.program.start();
    push(fixture);
    if !gate.wait(SOON) {
        return Err("the model was never called".into());
    }
    fixture.program.kill();
    Ok(gate)
}

pub fn resume(fixture: &mut SweepFixture) -> SweepResult {
    let gate = kill_during_model_call(fixture)?;
    gate.open();
    fixture.launch();
    Ok(())
}

/// Every start after a crash holds the interrupted turns for one second each.
pub fn holding_suspects() -> ProgramFixture {
    let program =
        ProgramFixture::with_config("gateway:\n  restart_loop_guard: {max_restarts: 1, stable_seconds: 1}\n");
    set_answer(&program, AnswerForm::Plain, answer(AnswerForm::Plain));
    program
}

pub fn suspect(fixture: &mut SweepFixture) -> SweepResult {
    let gate = kill_during_model_call(fixture)?;
    fixture.launch();
    // The turn is still executing when it is cleared.
    if !fixture.program.wait_killed(SOON) {
        return Err("the process was never killed".into());
    }
    gate.open();
    Ok(())
}

pub fn stop(fixture: &mut SweepFixture) -> SweepResult {
    let gate = fixture.program.model.gate(Point::Before);
    fixture.launch();
    push(fixture);
    if !gate.wait(SOON) {
        return Err("the model was never called".into());
    }
    fixture.program.gateway.as_ref().expect("it runs").signal_if_alive("TERM");
    // The stop interrupts the turn; the next process answers.
    if !fixture.program.wait_killed(SOON) {
        return Err("the process never stopped".into());
    }
    gate.open();
    Ok(())
}

/// The platform responds after the gateway has stopped accepting messages.
pub fn late_send(fixture: &mut SweepFixture) -> SweepResult {
    let gate = fixture.program.telegram.gate("sendMessage", Side::After);
    fixture.launch();
    push(fixture);
    if !gate.wait(SOON) {
        return Err("nothing was sent".into());
    }
    fixture.program.gateway.as_ref().expect("it runs").signal_if_alive("TERM");
    let socket = fixture.program.home.path().join("petasos.sock");
    wait("the control socket closes", || UnixStream::connect(&socket).is_err())?;
    gate.open();
    Ok(())
}

fn is_whole(form: AnswerForm, texts: &[String], answer: &str) -> bool {
    match form {
        AnswerForm::Split => {
            let part = |part: usize| texts.iter().any(|text| text.contains(&format!("({part}/{PARTS})")));
            (1..=PARTS).all(part)
        }
        AnswerForm::Plain | AnswerForm::Streamed => {
            texts.iter().any(|text| text.contains(answer) && !text.contains('▉'))
        }
    }
}

pub fn check(fixture: &mut SweepFixture, scenario: Scenario) -> SweepResult {
    let form = match scenario {
        Scenario::Exchange(form) => form,
        Scenario::SendFails(failure) => failure.form(),
        _other => AnswerForm::Plain,
    };
    let answer = match scenario {
        Scenario::Command => "/new".to_owned(),
        _other => answer(form).chars().take(60).collect(),
    };
    fixture.launch();
    let refused = scenario == Scenario::SendFails(SendFailure::Refused);
    let dead = |fixture: &SweepFixture| {
        fixture.program.status().pointer("/outbox/dead").and_then(|it| it.as_u64()) == Some(1)
    };
    let mut listed = false;
    let answered = wait("answered", || {
        // A message that was refused permanently is listed instead.
        listed = refused && dead(fixture);
        listed || is_whole(form, &fixture.texts(CHAT), &answer)
    });
    answered.map_err(|error| format!("{error}: {:?}", short(&fixture.texts(CHAT))))?;
    if listed {
        return Ok(());
    }
    fixture.program.wait_idle();
    let notices = ["Gateway shutting down", "Your message is kept"];
    let is_notice = |text: &String| notices.iter().any(|notice| text.contains(notice));
    let texts: Vec<String> = fixture.texts(CHAT).into_iter().filter(|text| !is_notice(text)).collect();
    no_unmarked_copy(form, &texts)?;
    fixture.check_model_calls(match scenario {
        Scenario::Command => 0,
        Scenario::Suspect => 3,
        _other => 2,
    })
}

pub fn no_unmarked_copy(form: AnswerForm, texts: &[String]) -> SweepResult {
    let mut unmarked: Vec<&String> = texts.iter().filter(|text| !is_marked(text)).collect();
    let count = unmarked.len();
    unmarked.sort();
    unmarked.dedup();
    // A preview next to a marked answer is no unmarked copy.
    let copies = unmarked.len() != count || (form != AnswerForm::Split && count > 1 && count == texts.len());
    if copies { Err(format!("an unmarked copy: {:?}", short(texts))) } else { Ok(()) }
}

/// The exchange is undone once, and the message is answered again.
pub fn check_retry(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    let answer = answer(AnswerForm::Plain);
    wait("answered again", || fixture.texts(CHAT).iter().filter(|text| text.contains(&answer)).count() > 1)?;
    fixture.program.wait_idle();
    match unmarked(&fixture.texts(CHAT), &answer) {
        1 | 2 => fixture.check_model_calls(3),
        _other => Err(format!("{:?}", short(&fixture.texts(CHAT)))),
    }
}
